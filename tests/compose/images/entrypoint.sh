# As the official image's does: begins as root, gives the folder to postgres and goes on as that user, or begins as a user
# whose folder it is. Makes the database where there is none.
set -eu
if [ -z "${POSTGRES_PASSWORD-}" ] && [ -n "${POSTGRES_PASSWORD_FILE-}" ]; then
  POSTGRES_PASSWORD=$(cat "$POSTGRES_PASSWORD_FILE")
fi
if [ "$(id -u)" = 0 ]; then
  chown postgres:postgres "$PGDATA" /run/postgresql
  chmod 700 "$PGDATA"
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
