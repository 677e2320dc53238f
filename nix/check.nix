# `nix flake check`: the libraries load, the scenarios are sound, and real ranks run inside the sandbox.
{
  pkgs,
  variant,
  environment,
  set,
  source,
  programs,
}:
pkgs.runCommand "rankproof-check-${variant}"
  (
    set
    // {
      nativeBuildInputs = programs;
      __darwinAllowLocalNetworking = true;
    }
  )
  ''
    export HOME="$TMPDIR"
    cd "$TMPDIR"
    rankproof() { PYTHONPATH=${source} ${environment}/bin/python -P -m harness.cli "$@"; }
    ${environment}/bin/python -c 'import nox, pytest, tokenizers, torch, transformers'
    PYTHONPATH=${source} ${environment}/bin/python -P -c 'from harness._integrity import ReliableMessageTransport'
    rankproof lint ${source}/scenarios
    rankproof run ${source}/scenarios/self-test --results "$out"
  ''
