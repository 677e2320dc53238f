# A folder with every wheel of the lock, each fetched by its hash.
{ pkgs, locks }:
let
  inherit (pkgs) lib;

  fetch =
    file: sha256:
    let
      parts = builtins.match "([^-]+)-([^-]+)-([^-]+)-([^-]+)-([^-]+)\\.whl" file;
      part = lib.elemAt parts;
    in
    assert lib.assertMsg (parts != null) "locks/wheels.json: ${file} is not a wheel's name. Run `nox -s lock`.";
    # Only PyTorch's own index has builds with a local version such as 2.13.0+cpu.
    if lib.hasInfix "+" (part 1) then
      pkgs.fetchurl {
        url = "${locks.torchIndex}/${lib.escapeURL file}";
        name = file;
        inherit sha256;
      }
    else
      pkgs.fetchPypi {
        format = "wheel";
        pname = part 0;
        version = part 1;
        dist = part 2;
        python = part 2;
        abi = part 3;
        platform = part 4;
        inherit sha256;
      };
in
pkgs.linkFarm "rankproof-wheelhouse" (lib.mapAttrs fetch locks.wheels)
