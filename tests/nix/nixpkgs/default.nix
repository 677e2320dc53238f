# A stand-in for nixpkgs, good enough to evaluate the flake on every system and to build it on this machine, with the
# programs that this machine already has. It is only reached through --override-input and never a default.
#
# host.json, which the check writes, names the Python, the pip and the folder of wheels to build with.
{ system }:
let
  lib = import ./lib.nix;
  host = lib.importJSON ./host.json;
  isLinux = lib.hasPrefix "linux" (lib.elemAt (builtins.match "[^-]+-(.*)" system) 0);
  path = "${host.path}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";

  # Runs with the host's programs. The closing `:` keeps bash from making the last command its own process: a program
  # of coreutils closes stdout before it ends, Nix takes that for the builder's end and kills it.
  run =
    name: more: script:
    derivation (
      {
        inherit name system;
        builder = "/bin/bash";
        args = [ "-euc" "export PATH=${path} HOME=$TMPDIR\n${script}\n:" ];
      }
      // more
    );
  named = name: drv: drv // { meta.mainProgram = name; };

  # Links to programs of the host. A program that is not there only fails where it is called.
  programs =
    name: names:
    named name (run name { } ''
      mkdir -p "$out/bin" "$out/lib"
      for program in ${lib.concatStringsSep " " names}; do
        if found=$(command -v "$program"); then ln -s "$found" "$out/bin/$program"; fi
      done
    '');

  # What `nix develop` reads.
  setup = run "stdenv" { } ''
    mkdir "$out"
    cat > "$out/setup" <<'END'
    export PATH=${path}
    for input in $buildInputs; do PATH="$input/bin:$PATH"; done
    for ((number = $(wc -w <<<"$nativeBuildInputs"); number > 0; number--)); do
      PATH="$(cut -d" " -f"$number" <<<"$nativeBuildInputs")/bin:$PATH"
    done
    END
  '';

  # A fixed output, as in nixpkgs: Nix compares the sha256. The bytes come from the folder that host.json names.
  fetch =
    file: sha256:
    run file {
      outputHash = sha256;
      outputHashAlgo = "sha256";
      outputHashMode = "flat";
    } ''
      [ -e '${host.wheels}/${file}' ] || {
        echo "${file}, which locks/wheels.json names, was not offered for the locks. Run: nox -s lock" >&2
        exit 1
      }
      cp '${host.wheels}/${file}' "$out"
    '';

  python = programs "python3" [ "python3" ] // {
    interpreter = host.python;
    sitePackages = "lib/python${host.version}/site-packages";
    pkgs.pip = run "pip" { } ''
      mkdir -p "$out/lib/python${host.version}/site-packages"
      ln -s '${host.pip}' "$out/lib/python${host.version}/site-packages/pip"
    '';
  };
in
{
  inherit lib;
  ${"python" + lib.replaceStrings [ "." ] [ "" ] host.version} = python;

  stdenv = {
    hostPlatform = { inherit system isLinux; };
    cc = programs "cc" [ "cc" "c++" "g++" "gcc" "ld" "as" ] // { cc.lib = programs "cc-lib" [ ]; };
    # The phases that our flake has: install, and what hooks add after the fixup.
    mkDerivation =
      given:
      run given.name (removeAttrs given [ "name" ]) ''
        postFixupHooks=()
        for input in $nativeBuildInputs; do
          PATH="$input/bin:$PATH"
          if [ -e "$input/nix-support/setup-hook" ]; then . "$input/nix-support/setup-hook"; fi
        done
        eval "$installPhase"
        for hook in ''${postFixupHooks[@]+"''${postFixupHooks[@]}"}; do "$hook"; done
      '';
  };

  mkShell =
    { packages, name, ... }@given:
    derivation (
      {
        inherit name system;
        builder = "/bin/bash";
        args = [ "-c" "/usr/bin/env > $out" ];
        outputs = [ "out" ];
        stdenv = setup;
        nativeBuildInputs = packages;
        buildInputs = [ ];
      }
      // removeAttrs given [ "name" "packages" ]
    );

  # Patches nothing: the host's libraries are where the wheels look. It holds every file to the same rule as the real
  # hook: a library that is neither in the environment, nor on the host, nor on the list, stops the build.
  autoPatchelfHook = run "auto-patchelf-hook" { } ''
    mkdir -p "$out/nix-support"
    cat > "$out/nix-support/setup-hook" <<'END'
    autoPatchelf() {
      local inside missing
      inside=$(find "$out" -name '*.so*' -printf '%f\n' | sort -u)
      missing=$(find "$out" -type f \( -name '*.so' -o -name '*.so.*' \) -print0 | xargs -0 -r -n 32 ldd 2>/dev/null |
        sed -n 's/^\t*\([^ ]*\) => not found.*/\1/p' | sort -u | grep -vxF "$inside" || true)
      for known in ''${autoPatchelfIgnoreMissingDeps-}; do missing=$(grep -vxF "$known" <<<"$missing" || true); done
      [ -z "$missing" ] || { echo "auto-patchelf could not satisfy dependency $missing" >&2; exit 1; }
    }
    postFixupHooks+=(autoPatchelf)
    END
  '';

  fetchurl = { url, name, sha256 }: fetch name sha256;
  fetchPypi =
    { format, pname, version, dist, python, abi, platform, sha256 }:
    fetch "${pname}-${version}-${python}-${abi}-${platform}.whl" sha256;

  linkFarm =
    name: entries:
    run name { } ''
      mkdir "$out"
      ${lib.concatStringsSep "\n" (lib.mapAttrsToList (file: target: "ln -s ${target} \"$out/${file}\"") entries)}
    '';
  writeText = name: text: run name { inherit text; passAsFile = [ "text" ]; } ''cp "$textPath" "$out"'';
  writeShellScriptBin =
    name: text:
    named name (
      run name { inherit text; passAsFile = [ "text" ]; } ''
        mkdir -p "$out/bin"
        { echo '#!/bin/bash'; cat "$textPath"; } > "$out/bin/${name}"
        chmod +x "$out/bin/${name}"
      ''
    );
  writeShellApplication =
    { name, text, runtimeInputs, meta }:
    run name { inherit text; passAsFile = [ "text" ]; } ''
      mkdir -p "$out/bin"
      { printf '#!/bin/bash\nset -euo pipefail\nexport PATH="%s:$PATH"\n' '${lib.makeBinPath runtimeInputs}'; cat "$textPath"; } > "$out/bin/${name}"
      bash -n "$out/bin/${name}"
      chmod +x "$out/bin/${name}"
    ''
    // { meta = meta // { mainProgram = name; }; };
  runCommand =
    name: given: script:
    run name given ''
      for input in $nativeBuildInputs; do PATH="$input/bin:$PATH"; done
      ${script}
    '';

  bashInteractive = programs "bash" [ "bash" ];
  git = programs "git" [ "git" ];
  openssh = programs "ssh" [ "ssh" "ssh-keygen" ];
  zlib = programs "zlib" [ ];
  nixfmt-tree = programs "treefmt" [ "treefmt" ];
}
