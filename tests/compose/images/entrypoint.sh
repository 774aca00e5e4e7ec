# Begins as root like the official image's: gives the folder to postgres, goes on as that user, and makes the database
# where there is none.
set -eu
if [ "$(id -u)" = 0 ]; then
  chown postgres:postgres "$PGDATA" /run/postgresql
  chmod 700 "$PGDATA"
  POSTGRES_PASSWORD=$(cat "$POSTGRES_PASSWORD_FILE")
  export POSTGRES_PASSWORD
  exec setpriv --reuid postgres --regid postgres --clear-groups sh "$0" "$@"
fi
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  printf '%s\n' "$POSTGRES_PASSWORD" >/tmp/password
  initdb --no-sync --username "$POSTGRES_USER" --pwfile /tmp/password --auth-local trust --auth-host scram-sha-256 \
    --encoding UTF8 --locale C >/dev/null
  rm /tmp/password
  echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
  echo "CREATE DATABASE \"$POSTGRES_DB\"" | postgres --single -j -D "$PGDATA" postgres >/dev/null
fi
unset POSTGRES_PASSWORD
exec "$@" -c listen_addresses='*' -c unix_socket_directories=/run/postgresql
