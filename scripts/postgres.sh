#!/usr/bin/env bash
# A private PostgreSQL for tests: its own folder, a free loopback port, no durability. Never runs as root.
# usage: postgres.sh start FOLDER   prints the database's URL (FOLDER must not exist yet)
#        postgres.sh stop FOLDER    stops it and removes the folder
set -euo pipefail

action=${1:?start or stop} folder=${2:?a folder}

programs() {
  local found
  found=$(find /usr/lib/postgresql -maxdepth 2 -name bin -type d 2>/dev/null | sort -V | tail -n 1)
  [[ -n $found ]] || found=$(dirname "$(command -v initdb)") || { echo "PostgreSQL is not installed" >&2; exit 1; }
  echo "$found"
}

as_owner() {
  if [[ $(id -u) -eq 0 ]]; then
    runuser -u postgres -- "$@"
  else
    "$@"
  fi
}

free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

bin=$(programs)
case $action in
  start)
    mkdir -m 700 "$folder"
    [[ $(id -u) -ne 0 ]] || chown postgres "$folder"
    cd "$folder"
    port=$(free_port)
    as_owner "$bin/initdb" --pgdata "$folder/cluster" --username transom --auth trust --encoding UTF8 --locale C \
      --no-sync >"$folder/initdb.log" 2>&1 || { cat "$folder/initdb.log" >&2; exit 1; }
    settings="-p $port -k '' -c listen_addresses=127.0.0.1 -c fsync=off -c synchronous_commit=off"
    as_owner "$bin/pg_ctl" --pgdata "$folder/cluster" --log "$folder/cluster/server.log" --options "$settings" \
      --wait --silent start >/dev/null || { cat "$folder/cluster/server.log" >&2; exit 1; }
    echo "postgresql+psycopg://transom@127.0.0.1:$port/postgres"
    ;;
  stop)
    [[ -d $folder ]] || exit 0
    cd "$folder"
    as_owner "$bin/pg_ctl" --pgdata "$folder/cluster" --mode immediate --silent stop >/dev/null || true
    cd / && rm -rf "$folder"
    ;;
  *)
    echo "start or stop, not $action" >&2
    exit 2
    ;;
esac
