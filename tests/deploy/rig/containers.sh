#!/usr/bin/env bash
# A real container engine with stand-ins for public images: for a Debian machine that reaches a Debian mirror and a
# Python package index, but no image registry. As root.
#
#   containers.sh engine       install what is missing, start an engine that builds on the machine's own network
#   containers.sh images       make the stand-ins, under the names that docker/Dockerfile and docker-compose.yml pull
#   containers.sh build ...    docker build, on the machine's network (refused while containers run)
#   containers.sh isolate      the same engine in a network namespace of its own: real networks, none leads out
#   containers.sh compose ...  docker compose there
#   containers.sh docker ...   the docker client
#   containers.sh in ...       a command in the namespace, where published ports are on 127.0.0.1
#   containers.sh down         stop the engine; images and volumes stay
#   containers.sh purge        and remove them
#
# `build`, `compose` and `in` bring the engine into the state that they need. MEMSWEEP_RIG_DIR (/var/tmp/memsweep-rig)
# holds everything.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$(cd "$here/../../.." && pwd)
place=${MEMSWEEP_RIG_DIR:-/var/tmp/memsweep-rig}
space=memsweep-$(printf %s "$place" | cksum | cut -d' ' -f1)
client=/usr/bin/docker   # Debian's; another may come first on PATH
export DOCKER_HOST=unix://$place/engine.sock DOCKER_BUILDKIT=1
unset DOCKER_CONTEXT DOCKER_TLS_VERIFY

need() {
  local missing=()
  command -v dockerd >/dev/null && [ -x "$client" ] || missing+=(docker.io)
  command -v iptables >/dev/null || missing+=(iptables)
  command -v mmdebstrap >/dev/null || missing+=(mmdebstrap)
  command -v ip >/dev/null || missing+=(iproute2)
  if [ ${#missing[@]} -gt 0 ]; then
    echo "rig: installing ${missing[*]}"
    apt-get -qq -o DPkg::Lock::Timeout=300 update
    DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 install -y --no-install-recommends \
      "${missing[@]}" >"$place/apt.log" 2>&1 || { tail -20 "$place/apt.log" >&2; exit 1; }
  fi
  [ -x "$place/docker-compose" ] || fetch_compose
}

# Compose v2 is in Debian from trixie on; its one file runs on bookworm.
fetch_compose() {
  local apt=$place/apt
  mkdir -p "$apt/lists/partial" "$apt/archives/partial"
  awk '/^Suites:/ {$2 = "trixie"; NF = 2} /^$/ {exit} {print}' /etc/apt/sources.list.d/debian.sources >"$apt/trixie.sources"
  local options=(-qq -o APT::Sandbox::User=root -o "Dir::Etc::SourceList=$apt/trixie.sources" -o Dir::Etc::SourceParts=/dev/null
    -o "Dir::State::Lists=$apt/lists" -o "Dir::Cache=$apt")
  apt-get "${options[@]}" update
  (cd "$apt" && apt-get "${options[@]}" download docker-compose)
  dpkg-deb --fsys-tarfile "$apt"/docker-compose_*.deb \
    | tar -xO ./usr/libexec/docker/cli-plugins/docker-compose >"$place/docker-compose.new"
  chmod +x "$place/docker-compose.new"
  mv "$place/docker-compose.new" "$place/docker-compose"
}

state() { "$client" info >/dev/null 2>&1 && cat "$place/state" || echo stopped; }

stop() {
  local pid
  [ -f "$place/engine.pid" ] || return 0
  pid=$(cat "$place/engine.pid")
  kill "$pid" 2>/dev/null || true
  for _ in $(seq 300); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
  rm -f "$place/engine.pid" "$place/state"
}

start() {   # start STATE PREFIX... -- OPTIONS...: dockerd, waited for
  local state=$1 prefix=()
  shift
  while [ "$1" != -- ]; do prefix+=("$1"); shift; done
  shift
  setsid "${prefix[@]}" dockerd --host "$DOCKER_HOST" --data-root "$place/data" --exec-root "$place/run" \
    --pidfile "$place/engine.pid" "$@" >>"$place/engine.log" 2>&1 </dev/null &
  for _ in $(seq 300); do
    if "$client" info >/dev/null 2>&1; then echo "$state" >"$place/state"; return; fi
    sleep 0.1
  done
  echo "rig: the engine did not start; the end of $place/engine.log:" >&2
  tail -5 "$place/engine.log" >&2
  exit 1
}

engine() {
  [ "$(state)" = open ] && return
  if [ "$(state)" = isolated ] && [ -n "$("$client" ps -q)" ]; then
    echo "rig: containers are running, and an engine that builds cannot run them: containers.sh compose down first" >&2
    exit 1
  fi
  stop
  start open env -- --bridge=none --iptables=false --ip6tables=false --ip-forward=false
}

isolate() {
  [ "$(state)" = isolated ] && return
  stop
  ip netns add "$space" 2>/dev/null || true
  ip -n "$space" link set lo up
  start isolated nsenter --net="/run/netns/$space" --
}

named() {   # named FILE VARIABLE: the image that a file of the project names, unless the variable says another
  local found
  found=$(sed -nE "s/.*$2(=|:-)([^} ]+).*/\2/p" "$top/$1" | head -1)
  echo "${!2:-$found}"
}

stand_in() {   # stand_in FOLDER BASE NAME: build an image, unless it was built from just these files
  local made
  made=$({ find "$1" -maxdepth 1 -type f | sort | xargs cat; "$client" image inspect --format '{{.Id}}' "$2"; } | sha256sum)
  made=${made:0:16}
  [ "$("$client" image inspect --format '{{index .Config.Labels "rig"}}' "$3" 2>/dev/null)" = "$made" ] && return
  "$client" build --quiet --network host --build-arg "BASE=$2" --label "rig=$made" --tag "$3" "$1" >/dev/null
}

images() {
  local python postgres s3 certificates=/etc/ssl/certs/ca-certificates.crt
  python=$(named docker/Dockerfile PYTHON_IMAGE)
  postgres=$(named docker-compose.yml POSTGRES_IMAGE)
  s3=$(named docker-compose.yml S3_IMAGE)
  if ! "$client" image inspect "$python" >/dev/null 2>&1; then
    local settings=(PIP_CERT=$certificates SSL_CERT_FILE=$certificates PIP_DEFAULT_TIMEOUT=180) wheels=()
    [ -f "$certificates" ] || settings=(PIP_DEFAULT_TIMEOUT=180)
    # wheels that this machine keeps beside its index
    local kept=${PIP_FIND_LINKS:-}
    if [ -d "$kept" ]; then
      wheels=("--customize-hook=mkdir -p \"\$1\"/opt/kept && cp \"$kept\"/*.whl \"\$1\"/opt/kept/")
      settings+=(PIP_FIND_LINKS=/opt/kept)
    fi
    mmdebstrap --quiet --mode=root --variant=minbase --include=python3,python3-pip,python3-venv,ca-certificates,busybox \
      --dpkgopt=path-exclude='/usr/share/man/*' --dpkgopt=path-exclude='/usr/share/doc/*' \
      --dpkgopt=path-exclude='/usr/share/locale/*' \
      --customize-hook="[ ! -f $certificates ] || cp $certificates \"\$1$certificates\"" \
      --customize-hook='rm -f "$1"/usr/lib/python3*/EXTERNALLY-MANAGED; rm -rf "$1"/var/lib/apt/lists/*' \
      "${wheels[@]}" bookworm - /etc/apt/sources.list.d/debian.sources \
      | "$client" import --change "ENV ${settings[*]}" --change 'CMD ["python3"]' - "$python" >/dev/null
  fi
  stand_in "$here/postgres" "$python" "$postgres"
  stand_in "$here/s3" "$python" "$s3"
  echo "rig: stand-ins for $python, $postgres, $s3"
}

mkdir -p "$place"
verb=${1:-}
[ $# -eq 0 ] || shift
case $verb in
engine) need; engine ;;
images) need; engine; images ;;
build) need; engine; "$client" build --network host "$@" ;;
isolate) need; isolate ;;
compose) need; isolate; exec "$place/docker-compose" "$@" ;;
docker) exec "$client" "$@" ;;
in) isolate; exec nsenter --net="/run/netns/$space" "$@" ;;
down) stop; ip netns del "$space" 2>/dev/null || true ;;
purge) stop; ip netns del "$space" 2>/dev/null || true; rm -rf "$place" ;;
*) sed -nE '2,/^set/s/^# ?(.*)/\1/p' "$0"; exit 2 ;;
esac
