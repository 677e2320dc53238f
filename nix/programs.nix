# `nix run`: the command, and the command with the scenarios that came with it.
{
  pkgs,
  set,
  source,
  programs,
}:
let
  command =
    name: description: text:
    pkgs.writeShellApplication {
      inherit name;
      meta = { inherit description; };
      runtimeInputs = programs;
      text = ''
        ${pkgs.lib.toShellVars set}
        export RANKPROOF_ENV RANKPROOF_VARIANT RANKPROOF_NIX RANKPROOF_SOURCE=${source} PYTHONPATH=${source}
        unset PYTHONHOME
        ${text}
      '';
    };
in
rec {
  rankproof = command "rankproof" "Validate distributed LLM inference on real ranks" ''
    export RANKPROOF_COMMAND="$0"
    exec "$RANKPROOF_ENV/bin/python" -P -m harness.cli "$@"
  '';
  validate = command "validate" "Run scenarios on real ranks and write signed reports into results/" ''
    # A scenario that is not here is the one of that name that came with the flake.
    arguments=()
    for argument in "$@"; do
      if [[ $argument == scenarios* && ! -e $argument && -e $RANKPROOF_SOURCE/$argument ]]; then
        argument=$RANKPROOF_SOURCE/$argument
      fi
      arguments+=("$argument")
    done
    if [[ $# == 0 && ! -e scenarios ]]; then
      arguments=("$RANKPROOF_SOURCE/scenarios")
    fi
    exec ${pkgs.lib.getExe rankproof} run "''${arguments[@]}"
  '';
}
