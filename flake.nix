{
  description = "Rankproof: a validation harness for distributed LLM inference";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-26.05";

  outputs =
    { nixpkgs, ... }:
    let
      inherit (nixpkgs) lib;

      # Plain `nix develop` and `nix run` take the first variant. The others: `nix develop .#cuda`.
      variants = {
        x86_64-linux = [ "cpu" "cuda" ];
        aarch64-linux = [ "cpu" "cuda" ];
        aarch64-darwin = [ "metal" ];
      };

      # Everything that belongs to one variant on one system: environment, shell, rankproof, validate, check.
      pieces = system: variant: import ./nix {
        inherit variant;
        pkgs = nixpkgs.legacyPackages.${system};
        # What was really used, beside what flake.lock says: the report compares the two.
        nixpkgs = nixpkgs.narHash or "unknown";
      };

      # Take one piece of every variant of every system.
      each = take: lib.mapAttrs (system: names: lib.genAttrs names (name: take (pieces system name))) variants;
      first = take: lib.mapAttrs (system: names: take (pieces system (lib.head names))) variants;
      withDefault = take: lib.mapAttrs (system: found: found // { default = (first take).${system}; }) (each take);

      program = package: {
        type = "app";
        program = lib.getExe package;
        meta.description = package.meta.description;
      };
    in
    {
      packages = withDefault (piece: piece.environment);
      devShells = withDefault (piece: piece.shell);
      checks = each (piece: piece.check);
      apps = first (piece: {
        default = program piece.rankproof;
        validate = program piece.validate;
      });
      formatter = lib.mapAttrs (system: _: nixpkgs.legacyPackages.${system}.nixfmt-tree) variants;
    };
}
