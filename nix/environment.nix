# A virtual environment in the store: the wheels of the wheelhouse, installed by pip from the same locks as without Nix.
# One site-packages for all, so that the paths by which torch, MLX and NVIDIA's libraries find each other stay right.
{
  pkgs,
  python,
  variant,
  locks,
  wheelhouse,
}:
let
  inherit (pkgs) lib stdenv;
  requirements = lib.concatMapStringsSep " " (file: "--requirement ${file}") locks.requirements;
in
stdenv.mkDerivation {
  name = "rankproof-env-${variant}";
  nativeBuildInputs = lib.optional stdenv.hostPlatform.isLinux pkgs.autoPatchelfHook;
  buildInputs = lib.optionals stdenv.hostPlatform.isLinux [ stdenv.cc.cc.lib pkgs.zlib ];
  dontUnpack = true;

  installPhase = ''
    export HOME="$TMPDIR"
    ${python.interpreter} -m venv --without-pip "$out"
    pip() { PYTHONPATH=${python.pkgs.pip}/${python.sitePackages} "$out/bin/python" -m pip --no-cache-dir --disable-pip-version-check "$@"; }
    pip install --no-index --no-deps --require-hashes --only-binary :all: --no-compile --no-warn-script-location --quiet \
      --find-links ${wheelhouse} ${requirements} || {
      echo "locks/wheels.json does not hold the wheels that locks/${variant}.txt and locks/dev.txt ask for. Run: nox -s lock" >&2
      exit 1
    }
    pip check || {
      echo "locks/${variant}.txt does not hold everything that its packages need. Run: nox -s lock" >&2
      exit 1
    }
    # The store has no times, so compiled files are told not to look at them. Templates that are not Python may fail.
    "$out/bin/python" -m compileall -q -j "''${NIX_BUILD_CORES:-1}" --invalidation-mode unchecked-hash "$out/lib" >/dev/null || true
    echo '${
      builtins.toJSON {
        inherit variant;
        lock = "${variant}.txt";
        lock_sha256 = locks.sha256;
        wheels_sha256 = locks.wheelsSha256;
      }
    }' > "$out/rankproof-environment.json"
  '';

  # The bytes of the wheels stay as they are, but for where libraries are looked for.
  dontStrip = true;
  dontPatchELF = true; # would drop the paths by which libraries are opened at run time
  dontPatchShebangs = true;
  appendRunpaths = [ "$ORIGIN" ]; # cuDNN and NVRTC open libraries beside themselves
  # The driver stays outside (docs/nix.md), and NVSHMEM's and cuFile's plug-ins for RDMA and MPI are not used here.
  # Found by reading every file of the locked wheels; anything else that is missing stops the build.
  autoPatchelfIgnoreMissingDeps = lib.optionals (variant == "cuda") [
    "libcuda.so.1"
    "libfabric.so.1"
    "libibverbs.so.1"
    "libmlx5.so.1"
    "libmpi.so.40"
    "liboshmem.so.40"
    "libpmix.so.2"
    "librdmacm.so.1"
    "libucp.so.0"
    "libucs.so.0"
  ];
}
