# The code that `nix run` runs. results/, tests and documentation are not in it, so that they rebuild nothing.
{ lib }:
lib.fileset.toSource {
  root = ../.;
  fileset = lib.fileset.unions [
    ../harness
    ../packages/integrity/src # what harness/_integrity links to
    ../scenarios
    ../LICENSE
    ../pyproject.toml
  ];
}
