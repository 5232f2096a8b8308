# twice.sh COMMAND...: a launcher that starts its rank, and once there is a file `again` once more,
# as after a failure: the same job to all appearances.
export RANK=0 LOCAL_RANK=0 WORLD_SIZE=1 LOCAL_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29998
export TORCHELASTIC_RUN_ID=same
"$@"
while ! test -e again; do sleep 0.05; done
"$@"
rm again
