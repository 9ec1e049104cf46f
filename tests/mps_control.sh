#!/bin/bash
# Stands in for nvidia-cuda-mps-control in tests: `-f` is the daemon, no argument asks it.
# MPS_FAKE=refuse ends at once with a message, deaf never answers.
pidfile="$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid"
if [ "$1" = -f ]; then
    echo "daemon $$ starts" >> "$CUDA_MPS_LOG_DIRECTORY/control.log"
    [ "$MPS_FAKE" = refuse ] && echo "no CUDA device" >> "$CUDA_MPS_LOG_DIRECTORY/control.log" && exit 1
    (exec -a nvidia-cuda-mps-server setsid sleep 300) &
    echo "$!" > "$CUDA_MPS_PIPE_DIRECTORY/server"
    [ "$MPS_FAKE" = deaf ] || echo $$ > "$pidfile"
    while [ ! -e "$CUDA_MPS_PIPE_DIRECTORY/quit" ]; do sleep 0.05; done
    kill "$(cat "$CUDA_MPS_PIPE_DIRECTORY/server")"
    exit 0
fi
read -r command argument
[ -e "$pidfile" ] || { echo "Cannot find MPS control daemon process"; exit 1; }
case "$command" in
    get_server_list) cat "$CUDA_MPS_PIPE_DIRECTORY/server" ;;
    get_client_list) [ "$argument" = "$(cat "$CUDA_MPS_PIPE_DIRECTORY/server")" ] && printf '101\n102\n' ;;
    quit) touch "$CUDA_MPS_PIPE_DIRECTORY/quit" ;;
esac
