# `nix develop`: the environment, and what runs need beside it. nox finds RANKPROOF_ENV and installs nothing.
{
  pkgs,
  variant,
  set,
  programs,
}:
let
  # The code is the working tree's, from whichever folder it is called.
  rankproof = pkgs.writeShellScriptBin "rankproof" ''
    PYTHONPATH=$RANKPROOF_PROJECT exec "$RANKPROOF_ENV/bin/python" -P -m harness.cli "$@"
  '';
  shell =
    more:
    pkgs.mkShell (
      set
      // more
      // {
        name = "rankproof-${variant}";
        packages = programs ++ [ rankproof ]; # mkShell itself brings the C++ compiler
        shellHook = ''
          unset PYTHONPATH PYTHONHOME
          export RANKPROOF_COMMAND=rankproof
          export RANKPROOF_PROJECT="$(git rev-parse --show-toplevel 2>/dev/null || pwd)"
        '';
      }
    );
in
# A shell cannot hold its own derivation path; this is that of the same shell without this line.
shell { RANKPROOF_SHELL = builtins.unsafeDiscardStringContext (shell { }).drvPath; }
