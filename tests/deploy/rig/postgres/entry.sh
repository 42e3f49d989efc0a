#!/bin/sh
# POSTGRES_USER, POSTGRES_PASSWORD, POSTGRES_DB; data in /var/lib/postgresql/data; starts as root and steps down.
set -eu
data=/var/lib/postgresql/data
socket=/var/run/postgresql
as() { setpriv --reuid=postgres --regid=postgres --clear-groups --inh-caps=-all "$@"; }
mkdir -p "$data" "$socket"
chown postgres: "$data" "$socket"
chmod 700 "$data"
if [ ! -s "$data/PG_VERSION" ]; then
  umask 077
  printf %s "$POSTGRES_PASSWORD" >/tmp/password
  chown postgres: /tmp/password
  as initdb --pgdata="$data" --username="$POSTGRES_USER" --pwfile=/tmp/password --auth=scram-sha-256 \
    --encoding=UTF8 --locale=C.UTF-8
  rm /tmp/password
  echo "host all all all scram-sha-256" >>"$data/pg_hba.conf"
  as pg_ctl --pgdata="$data" --wait --options="-c listen_addresses='' -k $socket" start
  PGPASSWORD=$POSTGRES_PASSWORD createdb --host="$socket" --username="$POSTGRES_USER" "$POSTGRES_DB"
  as pg_ctl --pgdata="$data" --wait stop
fi
exec setpriv --reuid=postgres --regid=postgres --clear-groups --inh-caps=-all \
  postgres -D "$data" -c listen_addresses='*' -k "$socket"
