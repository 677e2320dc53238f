# What the locks say: versions and accepted bytes are in the .txt files, which pip reads in Nix and out of it alike;
# wheels.json adds which file of each release fits this system. `nox -s lock` writes both.
{
  lib,
  variant,
  system,
}:
let
  folder = ../locks;
  table = lib.importJSON (folder + "/wheels.json");
  names = [ variant "dev" ];
  digest = name: builtins.hashFile "sha256" (folder + "/${name}.txt");
  stale = lib.filter (name: digest name != table.locks.${name} or "") names;
in
assert lib.assertMsg (stale == [ ])
  "locks/wheels.json was not made from this locks/${lib.head stale}.txt. Run `nox -s lock` and commit both.";
{
  inherit (table) python;
  wheels = table.systems.${system}.${variant};
  torchIndex = (lib.importTOML (folder + "/torch-cpu.toml")).index;
  requirements = map (name: folder + "/${name}.txt") names;
  sha256 = digest variant;
  wheelsSha256 = builtins.hashFile "sha256" (folder + "/wheels.json");
}
