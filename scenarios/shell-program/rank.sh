# One rank, in POSIX shell: dash runs it, so descriptors have one digit.
# Events go to descriptor 3, one JSON object a line; answers to gates come on descriptor 4, one line each.
set -eu
loader=$1

emit() {
    printf '%s\n' "$1" >&3
}

split() {
    if [ -z "$1" ]; then
        emit '{"event": "rank.error", "values": {"type": "EmptyPrompt", "message": "nothing to split", "source": "split \"$prompt\""}}'
        exit 1
    fi
    set -- $1
    emit "{\"event\": \"prompt\", \"values\": {\"words\": $#, \"rank\": $RANKPROOF_RANK}}"
}

emit '{"event": "ready"}'
read -r _ <&4 # comes when every rank is ready

prompt="Hello world"
if [ "$loader" = rank-0-only ] && [ "$RANKPROOF_RANK" != 0 ]; then
    prompt=
fi
split "$prompt"
