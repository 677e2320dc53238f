# Everything that belongs to one variant ("cpu", "cuda", "metal") on one system.
{
  pkgs,
  variant,
  nixpkgs,
}:
let
  inherit (pkgs) lib;
  locks = import ./locks.nix { inherit lib variant; inherit (pkgs.stdenv.hostPlatform) system; };
  python = pkgs.${"python" + lib.replaceStrings [ "." ] [ "" ] locks.python};
  source = import ./source.nix { inherit lib; };

  wheelhouse = import ./wheelhouse.nix { inherit pkgs locks; };
  environment = import ./environment.nix { inherit pkgs python variant locks wheelhouse; };
  # What the report says about Nix; the harness reads it from the file that RANKPROOF_NIX names.
  facts = pkgs.writeText "rankproof-nix.json" (builtins.toJSON {
    inherit nixpkgs;
    flake_lock_sha256 = builtins.hashFile "sha256" ../flake.lock;
    flake_lock_nixpkgs = (lib.importJSON ../flake.lock).nodes.nixpkgs.locked.narHash;
  });
  set = {
    RANKPROOF_ENV = "${environment}";
    RANKPROOF_VARIANT = variant;
    RANKPROOF_NIX = "${facts}";
  };
  # What runs need beside Python: signing, commits, and the compiler that MLX calls for its kernels on Linux.
  programs = [ environment pkgs.openssh pkgs.git ];
in
{
  inherit environment wheelhouse;
  shell = import ./shell.nix { inherit pkgs variant set programs; };
  inherit (import ./programs.nix { inherit pkgs set source; programs = programs ++ [ pkgs.stdenv.cc ]; }) rankproof validate;
  check = import ./check.nix { inherit pkgs variant environment set source programs; };
}
