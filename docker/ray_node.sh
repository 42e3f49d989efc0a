#!/bin/sh
# ray_node.sh head|worker: this container as a node of the cluster, for as long as its raylet lives.
#
#   NODE_CPUS      how many trials at once; 0 on the head, which drives and computes nothing
#   HEAD_ADDRESS   the head's name on the network that it shares with the workers
set -eu
# Jobs and reports are kilobytes and results go through the store: the smallest object store is enough.
set -- "$1" --block --disable-usage-stats --num-cpus="${NODE_CPUS:-1}" --object-store-memory=128000000
role=$1
shift
case $role in
head)
  # The head has a foot in two networks; only this one's address means anything to the workers.
  address=$(getent hosts "$HEAD_ADDRESS" | cut -d' ' -f1)
  exec ray start --head --node-ip-address="$address" --port=6379 --dashboard-host=0.0.0.0 --dashboard-port=8265 "$@"
  ;;
worker) exec ray start --address="$HEAD_ADDRESS:6379" "$@" ;;
*)
  echo "ray_node.sh: head or worker, not '$role'" >&2
  exit 2
  ;;
esac
