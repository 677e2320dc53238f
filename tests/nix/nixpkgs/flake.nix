{
  description = "A stand-in for nixpkgs, for checks without the network: see default.nix";

  outputs =
    { ... }:
    {
      lib = import ./lib.nix;
      legacyPackages = (import ./lib.nix).genAttrs [ "x86_64-linux" "aarch64-linux" "aarch64-darwin" ] (
        system: import ./. { inherit system; }
      );
    };
}
