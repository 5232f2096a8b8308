# ranks.sh COUNT COMMAND...: starts so many ranks as a launcher does, and waits for all.
count=$1
shift
for rank in $(seq 0 $((count - 1))); do
    RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=$count LOCAL_WORLD_SIZE=$count \
        MASTER_ADDR=127.0.0.1 MASTER_PORT=29999 "$@" &
    pids="$pids $!"
done
status=0
for pid in $pids; do
    wait "$pid" || status=$?
done
exit $status
