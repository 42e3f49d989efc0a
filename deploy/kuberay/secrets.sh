#!/usr/bin/env bash
# Makes the secrets that the manifests name. Passwords are random and shown nowhere; a secret that is there already is
# left as it is. What only you know comes from the environment, so that it is in no file and no command line:
#
#   POSTGRES_PASSWORD       of the user `mlflow` of the data base `mlflow`
#   AWS_ACCESS_KEY_ID       keys for the bucket; leave both out where pods have roles (components/aws-roles)
#   AWS_SECRET_ACCESS_KEY
#
# usage: secrets.sh            creates them in the namespace memsweep
#        secrets.sh --print    writes manifests to standard output, for a tool that seals secrets; asks no cluster
set -euo pipefail
namespace=memsweep
: "${POSTGRES_PASSWORD:?set it to the password of the user mlflow in your PostgreSQL (see the head of this file)}"
if [[ -n "${AWS_ACCESS_KEY_ID:-}" && -z "${AWS_SECRET_ACCESS_KEY:-}" ]]; then
    echo "secrets.sh: AWS_ACCESS_KEY_ID is set and AWS_SECRET_ACCESS_KEY is not: set both, or neither" >&2
    exit 2
fi

random() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }

secret() { # secret NAME kubectl-arguments...
    local name=$1
    shift
    if [[ "${print:-}" ]]; then
        kubectl create secret generic "$name" --namespace "$namespace" "$@" --dry-run=client --output yaml
        echo "---"
    elif kubectl get secret "$name" --namespace "$namespace" --output name >/dev/null 2>&1; then
        echo "$name is there already and stays as it is"
    else
        kubectl create secret generic "$name" --namespace "$namespace" "$@"
    fi
}

[[ "${1:-}" == --print ]] && print=yes

secret memsweep-mlflow \
    --from-file=MLFLOW_TRACKING_USERNAME=<(printf memsweep) \
    --from-file=MLFLOW_TRACKING_PASSWORD=<(random)
secret memsweep-mlflow-server \
    --from-file=PGPASSWORD=<(printf %s "$POSTGRES_PASSWORD") \
    --from-file=MLFLOW_FLASK_SERVER_SECRET_KEY=<(random)
if [[ -n "${AWS_ACCESS_KEY_ID:-}" ]]; then
    secret memsweep-storage \
        --from-file=AWS_ACCESS_KEY_ID=<(printf %s "$AWS_ACCESS_KEY_ID") \
        --from-file=AWS_SECRET_ACCESS_KEY=<(printf %s "$AWS_SECRET_ACCESS_KEY")
fi
