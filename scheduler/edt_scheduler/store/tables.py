"""The tables, as the code knows them.

``edt_migrations`` defines the same tables independently, with the triggers that this module cannot express: legal
changes of state, fences that only grow, history without gaps, slots released once. A test compares the two on both
databases. Times are seconds since the epoch in double precision. They are for people, and for the back-offs of the one
writer.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    false,
    text,
)
from sqlalchemy.dialects import postgresql

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

Id = BigInteger().with_variant(Integer, "sqlite")
"""SQLite numbers rows by itself only if the column is INTEGER.

SQLite would give the number of a deleted row to a new row. A table sets ``sqlite_autoincrement`` if that must not
happen: if its numbers are used outside the database or after their transaction.
"""
Json = JSON().with_variant(postgresql.JSONB(), "postgresql")
NullableJson = JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")

OVER = "finished_at IS NOT NULL AND deleted_at IS NULL"


def partial_index(name: str, where: str, *columns: str, unique: bool = False) -> Index:
    """An index of a few rows among many. A query uses it only if the query contains the whole condition itself."""
    return Index(name, *columns, unique=unique, sqlite_where=text(where), postgresql_where=text(where))


# ── users, their tokens and their Idempotency-Keys ───────────────────────────────────────────────────────────────────

users = Table(
    "users",
    metadata,
    Column("id", Id, primary_key=True),
    Column("name", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("password_hash", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("removed_at", Double),
    CheckConstraint("role IN ('admin', 'user', 'viewer')", name="role"),
    # A removed user's row stays with its jobs. A later user of the same name is another user.
    partial_index("uq_users_name", "removed_at IS NULL", "name", unique=True),
    sqlite_autoincrement=True,
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", Id, primary_key=True),
    Column("user_id", Id, ForeignKey("users.id"), nullable=False, index=True),
    Column("secret_sha256", Text, nullable=False, unique=True),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False, index=True),
)

api_tokens = Table(
    "api_tokens",
    metadata,
    Column("id", Id, primary_key=True),
    Column("user_id", Id, ForeignKey("users.id"), nullable=False, index=True),
    Column("name", Text, nullable=False),
    Column("scope", Text, nullable=False),
    Column("secret_sha256", Text, nullable=False, unique=True),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double, index=True),  # null: never
    Column("last_used_at", Double),
    CheckConstraint("scope IN ('read', 'submit', 'admin')", name="scope"),
    sqlite_autoincrement=True,
)

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("user_id", Id, ForeignKey("users.id"), primary_key=True),
    Column("key", Text, primary_key=True),
    Column("request_sha256", Text, nullable=False),
    Column("made", Text, nullable=False),  # an exec id, or a user's name
    Column("created_at", Double, nullable=False, index=True),
)


# ── jobs, with what belongs to one job: environment, events, metrics ─────────────────────────────────────────────────

job_transitions = Table(
    "job_transitions",
    metadata,
    Column("before", Text, primary_key=True),
    Column("after", Text, primary_key=True),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", Id, primary_key=True),
    Column("user_id", Id, ForeignKey("users.id"), nullable=False, index=True),
    Column("state", Text, nullable=False, index=True),
    Column("fence", Integer, nullable=False, server_default="0"),  # number of attempts; the live attempt's fence
    Column("events", Integer, nullable=False, server_default="0"),  # seq of the newest job_events row
    # as submitted
    Column("framework", Text, nullable=False),
    Column("backend", Text, nullable=False),
    Column("app_name", Text, nullable=False),
    Column("args_verbatim", Text, nullable=False),
    Column("model_main", Text, nullable=False),
    Column("work_dir", Text, nullable=False),  # relative to the job's folder
    Column("arguments", Json, nullable=False),
    Column("options", Json, nullable=False, server_default="[]"),  # list of [option, value], secrets masked
    Column("remark", Text),
    Column("pending_timeout", BigInteger),  # seconds from the submit to the first start at most
    Column("data_path", Text),
    Column("image", Text),  # image of its containers; None: the node's own image
    Column("gang", NullableJson),  # a GangCommand; None: the job is elastic
    Column("default_log", Text, nullable=False, server_default="steps"),  # a model.jobs.DefaultLog
    Column("num_worker", Integer, nullable=False),
    Column("worker_device_num", Integer, nullable=False),
    Column("device", Text),  # gpu or cpu, the only kind of slot that it gets; null: either kind
    Column("gpu_models", NullableJson),  # list of the only models of GPUs that it gets, in lower case; null: any
    Column("max_slots", Integer),  # the most slots, as changed later; null: num_worker * worker_device_num
    Column("min_slots", Integer, nullable=False, server_default="1"),  # the fewest with which it trains
    Column("sizes", NullableJson),  # list of the only numbers of slots that it may have; null: the platform's choice
    Column("queue", Text, nullable=False, server_default=text("''")),  # path as submitted; "": the root
    Column("priority", Integer, nullable=False, server_default="1"),
    Column("submitted_priority", Integer, nullable=False, server_default="1"),  # the most that its owner may set
    Column("after", Json, nullable=False, server_default="[]"),  # numbers of the jobs that must be over before it
    Column("deadline", Double),  # when its user wants it to be done
    Column("time_limit", Double),  # seconds that its attempts may run in all
    Column("prior_key", Text),  # jobs with the same key count as alike for speeds; see model.speeds
    Column("max_restarts", Integer, nullable=False, server_default="0"),
    Column("seed", BigInteger, nullable=False),
    Column("threads", Integer, nullable=False),
    # as its attempts reported
    Column("engines", Integer),
    Column("engines_at", Double),  # when E was reported
    Column("steps_total", BigInteger),
    Column("epochs", Integer),
    Column("workers", Integer, nullable=False, server_default="0"),
    Column("progress", Json, nullable=False),
    Column("step_times", NullableJson),  # the newest ones that were reported; see model.step_times
    Column("trained_samples", BigInteger, nullable=False, server_default="0"),  # of training steps, over all attempts
    Column("trained_seconds", Double, nullable=False, server_default="0"),  # how long these steps took
    Column("validation", NullableJson),  # the newest one; for this and the next see model.validation
    Column("best", Json, nullable=False, server_default="{}"),  # the best value of each metric of its validations
    Column("best_model", NullableJson),  # body of the newest BEST_KEPT report
    Column("checkpoint_step", BigInteger),
    Column("wanted_epochs", Integer),  # that its training has in all; null: those of its script
    Column("resumed_from", BigInteger),  # number of the job from whose checkpoint it begins; that job may be gone
    Column("resumed_step", BigInteger),  # the step of that checkpoint
    Column("digest", Text),
    Column("inexact", Text),  # why its result is not exact; for this and the next three see model.exactness
    Column("comparisons", Integer, nullable=False, server_default="0"),  # comparisons in which its engines were equal
    Column("compared_step", BigInteger),
    Column("uncompared_step", BigInteger),
    Column("message", Text),
    Column("losses", Integer, nullable=False, server_default="0"),  # number of attempts lost in a row
    Column("not_before", Double),  # it gets no new slot until then
    Column("restarts", Integer, nullable=False, server_default="0"),  # number of restarts used, of max_restarts
    Column("raised", Text),  # the last exception that ended its script
    Column("raised_step", BigInteger),
    Column("ooms", Integer, nullable=False, server_default="0"),  # number of engines killed for memory
    Column("pull_failures", Integer, nullable=False, server_default="0"),  # in a row
    Column("cap", Integer),  # most slots that it gets until cap_until, after a pull failure
    Column("cap_until", Double),
    Column("fence_due", Integer),  # fence that its fence file must get before it starts again
    Column("waiting", NullableJson),  # why it waits: blocking, reason and need of views.Waiting
    # sums of its history, so that no decision reads the history
    Column("slot_seconds", Double, nullable=False, server_default="0"),  # of the slots that it has given back
    Column("ran_seconds", Double, nullable=False, server_default="0"),  # that its ended attempts have run
    Column("resized_at", Double),  # when its newest resize was decided
    Column("pauses", Integer, nullable=False, server_default="0"),  # number of resizes with a measured pause
    Column("pause_seconds", Double, nullable=False, server_default="0"),  # sum of these pauses
    # times
    Column("created_at", Double, nullable=False),
    Column("started_at", Double),
    Column("finished_at", Double),
    Column("stop_requested_at", Double),
    Column("stopped_for", Text),  # why the platform stops it; null: its user has asked for it
    Column("paused_at", Double),
    Column("paused_by", Text),  # name of the user
    Column("deleted_at", Double),
    # what is kept of the job: periodic.retention
    Column("results_removed_at", Double),  # since when its results count as removed because of their age
    Column("results_days", Double),  # for how many days they were kept
    Column("folder_gone_at", Double),  # when its folder was removed
    Column("metrics_thinned_at", Double),
    partial_index("ix_jobs_fence_due", "fence_due IS NOT NULL", "id"),
    partial_index("ix_jobs_pending_timeout", "pending_timeout IS NOT NULL AND finished_at IS NULL", "id"),
    partial_index("ix_jobs_over", OVER, "finished_at"),
    partial_index("ix_jobs_results", f"{OVER} AND results_removed_at IS NULL", "finished_at"),
    partial_index("ix_jobs_metrics", f"{OVER} AND metrics_thinned_at IS NULL", "finished_at"),
    partial_index("ix_jobs_folder_of_deleted", "deleted_at IS NOT NULL AND folder_gone_at IS NULL", "deleted_at"),
    partial_index(
        "ix_jobs_folder_of_kept", "results_removed_at IS NOT NULL AND folder_gone_at IS NULL", "results_removed_at"
    ),
    partial_index("ix_jobs_deleted_at", "deleted_at IS NOT NULL", "deleted_at"),
    CheckConstraint("num_worker >= 1 AND worker_device_num >= 1", name="size"),
    CheckConstraint("engines IS NULL OR engines >= 1", name="engines"),
    CheckConstraint("priority >= 1", name="priority"),
    CheckConstraint("submitted_priority >= 1", name="submitted_priority"),
    CheckConstraint("min_slots >= 1", name="min_slots"),
    sqlite_autoincrement=True,
)

speed_points = Table(
    "speed_points",  # how long a job's steps take, by number of workers and nodes
    metadata,
    Column("job_id", Id, ForeignKey("jobs.id"), primary_key=True),
    Column("model", Text, primary_key=True),  # of the GPUs, in lower case; "": not GPUs, or unknown
    Column("workers", Integer, primary_key=True, autoincrement=False),
    Column("nodes", Integer, primary_key=True, autoincrement=False),
    Column("step_seconds", Double, nullable=False),  # mean that follows the newest steps
    Column("samples", BigInteger, nullable=False),  # number of steps
    Column("at", Double, nullable=False),
)

prior_points = Table(
    "prior_points",  # the same of all jobs with one jobs.prior_key
    metadata,
    Column("prior_key", Text, primary_key=True),
    Column("model", Text, primary_key=True),
    Column("workers", Integer, primary_key=True, autoincrement=False),
    Column("nodes", Integer, primary_key=True, autoincrement=False),
    Column("step_seconds", Double, nullable=False),
    Column("samples", BigInteger, nullable=False),
    Column("at", Double, nullable=False, index=True),
)

start_estimates = Table(
    "start_estimates",  # the first estimate that was made of when a waiting job starts
    metadata,
    Column("job_id", Id, ForeignKey("jobs.id"), primary_key=True, autoincrement=False),
    Column("made_at", Double, nullable=False),
    Column("expected_at", Double),  # null: no time could be named
    Column("rule", Text, nullable=False),  # what the estimate rests on, in words
)

reservations = Table(
    "reservations",  # numbers of submits whose job is not written yet
    metadata,
    Column("number", Id, primary_key=True, autoincrement=False),
    Column("created_at", Double, nullable=False),
)

job_environs = Table(
    "job_environs",
    metadata,
    Column("job_id", Id, ForeignKey("jobs.id"), primary_key=True, autoincrement=False),
    Column("key_id", Text),  # names the key and reveals nothing about it
    Column("sealed", Text),
    Column("plain", NullableJson),
    CheckConstraint("(key_id IS NULL) = (sealed IS NULL) AND (sealed IS NULL) <> (plain IS NULL)", name="one"),
)

job_events = Table(
    "job_events",
    metadata,
    Column("job_id", Id, ForeignKey("jobs.id"), primary_key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("time", Double, nullable=False),
    Column("kind", Text, nullable=False),
    Column("fence", Integer, nullable=False),
    Column("message", Text, nullable=False),
    Column("data", Json, nullable=False),
)

metric_points = Table(
    "metric_points",
    metadata,
    Column("job_id", Id, ForeignKey("jobs.id"), primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),  # over the PROGRESS reports of all attempts
    Column("fence", Integer, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("time", Double, nullable=False),
    Column("epoch", Integer),
    Column("workers", Integer),
    Column("loss", Double),
    Column("samples_per_second", Double),
    Column("metrics", Json, nullable=False),
)

validations = Table(
    "validations",
    metadata,
    Column("job_id", Id, ForeignKey("jobs.id"), primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),  # over the VALIDATED reports of all attempts
    Column("fence", Integer, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("time", Double, nullable=False),
    Column("epoch", Integer),
    Column("workers", Integer),
    Column("loss", Double),
    Column("metrics", Json, nullable=False),
)

purges = Table(
    "purges",  # jobs that this transaction purges; never holds a row at COMMIT
    metadata,
    Column("job_id", Id, primary_key=True, autoincrement=False),
    Column("never", Id, ForeignKey("jobs.id", deferrable=True, initially="DEFERRED"), nullable=False, index=True),
)


# ── nodes, their slots, images, samples of the use of slots, and the slot time per day ───────────────────────────────

nodes = Table(
    "nodes",
    metadata,
    Column("id", Id, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("host", Text, nullable=False),
    Column("cores", Integer, nullable=False),
    Column("boot_id", Text, nullable=False),
    Column("incarnation", Text, nullable=False),
    Column("token_sha256", Text, nullable=False, unique=True),
    Column("intent", Text, nullable=False, server_default="open"),
    Column("lost_at", Double),
    Column("counter", BigInteger, nullable=False, server_default="0"),  # increases when the node is heard from
    Column("version", BigInteger, nullable=False, server_default="1"),  # increases when its assignments change
    Column("registered_at", Double, nullable=False),
    Column("seen_at", Double, nullable=False),
    Column(
        "launcher", Text, nullable=False, server_default="process"
    ),  # in what its jobs run: process, docker, docker-fixed
    Column("usage_at", Double),  # time of the newest slot_usage
    Column("removed_at", Double),  # since then on no list; it was lost, and its history stays
    Column("alone", Boolean, nullable=False, server_default=false()),  # no attempt uses this node and another one
    Column("pool_id", Id, ForeignKey("pools.id")),  # null: it was not asked for
    Column("only_for", Id),  # number of the only job that may use it; null: any job
    Column("leaving_why", Text),  # why it is being emptied, if it leaves by itself
    partial_index("ix_nodes_present", "removed_at IS NULL", "id"),
    CheckConstraint("intent IN ('open', 'cordoned', 'draining')", name="intent"),
    CheckConstraint("cores >= 1", name="cores"),
)

pools = Table(
    "pools",  # nodes that another cluster manager gives and takes; see edt_contract.pools.PoolOffer
    metadata,
    Column("id", Id, primary_key=True),
    Column("name", Text, nullable=False),
    Column("kind", Text, nullable=False),  # kubernetes, slurm, process
    Column("slots", Integer, nullable=False),  # of each node
    Column("max_nodes", Integer, nullable=False),
    Column("max_set", Boolean, nullable=False, server_default=false()),  # by an administrator, as the next two
    Column("min_nodes", Integer, nullable=False),
    Column("min_set", Boolean, nullable=False, server_default=false()),
    Column("patience_seconds", Double, nullable=False),
    Column("patience_set", Boolean, nullable=False, server_default=false()),
    Column("idle_seconds", Double, nullable=False),
    Column("per_job", Boolean, nullable=False),
    Column("containers", Boolean, nullable=False),
    Column("device", Text, nullable=False),
    Column("model", Text, nullable=False),  # of the GPUs, in lower case; "": they are all alike, or not GPUs
    Column("note", Text, nullable=False),
    Column("named", BigInteger, nullable=False, server_default="0"),  # number of the newest node's name
    Column("trouble", Text),  # why the cluster manager does not answer; null: it does
    Column("registered_at", Double, nullable=False),
    Column("seen_at", Double, nullable=False),
    Column("removed_at", Double),
    CheckConstraint("slots >= 1", name="slots"),
    CheckConstraint("min_nodes >= 0 AND max_nodes >= 0", name="size"),
    CheckConstraint("patience_seconds > 0 AND idle_seconds > 0", name="seconds"),
    CheckConstraint("device IN ('cpu', 'gpu')", name="device"),
    partial_index("uq_pools_name", "removed_at IS NULL", "name", unique=True),
    sqlite_autoincrement=True,
)

node_requests = Table(
    "node_requests",  # nodes that a pool's cluster manager was asked for
    metadata,
    Column("id", Id, primary_key=True),
    Column("pool_id", Id, ForeignKey("pools.id"), nullable=False),
    Column("node", Text, nullable=False, unique=True),  # the node's name; it is never used twice
    Column("job_id", Id),  # number of the only job that may use it, which may be gone; null: any job
    Column("first", Boolean, nullable=False),  # the job needs it to start
    Column("group_size", Integer, nullable=False),  # number of nodes of a gang; 0: it is none
    Column("asked_at", Double, nullable=False),  # since when it is waited for
    Column("state", Text, nullable=False, server_default="asked"),  # asked, or an edt_contract.pools.PoolState
    Column("reason", Text, nullable=False, server_default=text("''")),  # of its state, in the cluster manager's words
    Column("created_at", Double),  # when the cluster manager was first seen to know it
    Column("granted_at", Double),  # when its agent registered; null: it is not there
    Column("give_up_at", Double, index=True),  # since when it is not wanted
    Column("give_up_why", Text),
    Column("refused", Boolean, nullable=False, server_default=false()),  # it did not come within the pool's patience
    Column("ended_at", Double, index=True),
    Column("ended_reason", Text),
    Column("oom", Boolean, nullable=False, server_default=false()),  # it was ended because it used too much memory
    CheckConstraint("state IN ('asked', 'refused', 'pending', 'running', 'ended')", name="state"),
    CheckConstraint("group_size >= 0", name="group_size"),
    CheckConstraint("(give_up_at IS NULL) = (give_up_why IS NULL)", name="given_up"),
    CheckConstraint(
        "(ended_at IS NULL) = (ended_reason IS NULL) AND (ended_at IS NULL) = (state <> 'ended')", name="over"
    ),
    partial_index("ix_node_requests_open", "ended_at IS NULL", "pool_id"),
    sqlite_autoincrement=True,
)

images = Table(
    "images",
    metadata,
    Column("id", Id, primary_key=True),
    Column("name", Text, nullable=False, unique=True),  # images.canonical
    Column("allowed_by", Id, ForeignKey("users.id"), nullable=False),
    Column("allowed_at", Double, nullable=False),
    Column("everywhere", Boolean, nullable=False),  # nodes that start containers should have it ready
)

image_pulls = Table(
    "image_pulls",
    metadata,
    Column("node_id", Id, ForeignKey("nodes.id"), primary_key=True),
    Column("image", Text, ForeignKey("images.name"), primary_key=True),
    Column("asked_at", Double, nullable=False),
    Column("done_at", Double),  # when the node answered
    Column("error", Text),  # why the node cannot get the image
)

slots = Table(
    "slots",
    metadata,
    Column("node_id", Id, ForeignKey("nodes.id"), primary_key=True),
    Column("slot", Text, primary_key=True),
    Column("position", Integer, nullable=False),  # order in which the node lists them
    Column("device", Text, nullable=False),
    Column("label", Text, nullable=False),
    Column("present", Boolean, nullable=False),  # named by the newest registration
    Column("model", Text),  # of a GPU, as the next three
    Column("memory_total_bytes", BigInteger),
    Column("compute_capability", Text),
    Column("mig_profile", Text),
    Column("problem", Text),  # why the GPU does not answer, so that no engine starts there; null: it does
)

slot_usage = Table(
    "slot_usage",
    metadata,
    Column("node_id", Id, primary_key=True),
    Column("slot", Text, primary_key=True),
    Column("time", Double, primary_key=True, index=True),
    Column("utilisation", Double),  # 0 to 1
    Column("memory_bytes", BigInteger),
    Column("memory_total_bytes", BigInteger),
    Column("power_watts", Double),
    Column("temperature_c", Double),
    Column("ecc_errors", BigInteger),  # that could not be corrected, since the driver was loaded
    Column("foreign_processes", NullableJson),  # list of [pid, name]
    ForeignKeyConstraint(["node_id", "slot"], ["slots.node_id", "slots.slot"]),
)

user_days = Table(
    "user_days",  # for how long a user's jobs have held slots, by day
    metadata,
    Column("user_id", Id, ForeignKey("users.id"), primary_key=True),
    Column("day", BigInteger, primary_key=True, autoincrement=False),  # begin of the day, UTC
    Column("slot_seconds", Double, nullable=False),
    Index("ix_user_days_day", "day", "user_id"),
)

rolled_up = Table(
    "rolled_up",
    metadata,
    Column("what", Text, primary_key=True),  # user_days or queue_usage
    Column("until", BigInteger, nullable=False),  # all seconds before this are counted once
)


# ── queues, what they have used, and recorded decisions ──────────────────────────────────────────────────────────────

queues = Table(
    "queues",
    metadata,
    Column("path", Text, primary_key=True),  # "": the root
    Column("quota", Integer, nullable=False),
    Column("weight", Double, nullable=False),
    Column("limit", Integer),  # the most slots that its jobs hold together; null: no limit
    Column("policy", Text, nullable=False),  # a plan.queues.Sharing
    Column("created_at", Double, nullable=False),
    CheckConstraint("quota >= 0 AND weight > 0", name="share"),
)

queue_usage = Table(
    "queue_usage",
    metadata,
    Column("queue", Text, primary_key=True),
    Column("user_id", Id, ForeignKey("users.id"), primary_key=True, autoincrement=False),
    Column("slot_seconds", Double, nullable=False),  # those of the past, decayed until ``at``
    Column("at", Double, nullable=False),
)

decisions = Table(
    "decisions",  # decisions that changed something
    metadata,
    Column("id", Id, primary_key=True),
    Column("at", Double, nullable=False, index=True),
    Column("state", LargeBinary, nullable=False),  # a plan.state.State; see decide.recorded
    Column("plan", LargeBinary, nullable=False),
    Column("bytes", Integer, nullable=False),  # of both
    Column("actions", Json, nullable=False),  # list of [exec id, verb, slots before, slots after, cause]
    sqlite_autoincrement=True,
)


# ── attempts, their supervisors, the slots they hold, and each change of size ────────────────────────────────────────

attempts = Table(
    "attempts",
    metadata,
    Column("job_id", Id, ForeignKey("jobs.id"), primary_key=True),
    Column("fence", Integer, primary_key=True, autoincrement=False),
    Column("head_node_id", Id, ForeignKey("nodes.id"), nullable=False),  # node of its coordinator and driver
    Column("coordinator_node_id", Id, ForeignKey("nodes.id")),  # its address counts until the head node reports one
    Column("token", Text, nullable=False),
    Column("coordinator", Text),
    Column("created_at", Double, nullable=False),
    Column("started_at", Double),
    Column("trained_at", Double),  # when an engine finished; the driver continues without slots
    Column("kind", Text),  # how it ended; its last processes may still be ending
    Column("message", Text),
    Column("code", Integer),
    Column("failed_step", BigInteger),  # the step at which the script raised an exception
    Column("oom", Boolean),  # one of its processes was killed for memory
    Column("wanted_epochs", Integer),  # its job's when it began; null: those of the script
    Column("ended_at", Double),  # since when no process of it is left
    CheckConstraint("fence >= 1", name="fence"),
    partial_index("uq_attempts_live", "ended_at IS NULL", "job_id", unique=True),
)

added_frameworks = Table(
    "added_frameworks",
    metadata,
    Column("name", Text, primary_key=True),
    Column("entry", Json, nullable=False),  # a model.catalogue.Framework
    Column("added_by", Text, nullable=False),  # name of the administrator
    Column("added_at", Double, nullable=False),
)

supervisors = Table(
    "supervisors",
    metadata,
    Column("job_id", Id, primary_key=True),
    Column("fence", Integer, primary_key=True, autoincrement=False),
    Column("node_id", Id, ForeignKey("nodes.id"), primary_key=True),
    Column("acked", BigInteger, nullable=False, server_default="0"),  # report cursor: newest number taken
    Column("handed_at", Double),  # first listed to the agent
    Column("ended_at", Double),
    Column("kind", Text),
    Column("reports_complete_at", Double),  # when its last report was taken
    Column("ports", NullableJson),  # the ports that it reserved for its part of a gang
    ForeignKeyConstraint(["job_id", "fence"], ["attempts.job_id", "attempts.fence"]),
    partial_index("ix_supervisors_open", "ended_at IS NULL", "node_id"),
)

resizes = Table(
    "resizes",
    metadata,
    Column("id", Id, primary_key=True),
    Column("job_id", Id, ForeignKey("jobs.id"), nullable=False, index=True),
    Column("fence", Integer, nullable=False),
    Column("cause", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("from_slots", Integer, nullable=False),
    Column("to_slots", Integer, nullable=False),
    Column("decided_at", Double, nullable=False, index=True),
    Column("notified_at", Double),
    Column("woken_by", Text),
    Column("woken_at", Double),
    Column("started_at", Double),
    Column("joined_at", Double),
    Column("first_step_at", Double),
    Column("gone_at", Double),
    Column("generation", Integer),
    Column("step", BigInteger),
    Column("workers", Integer),
    Column("pause_seconds", Double),
    Column("recomputed", Integer),  # micro-batches that were computed again
    CheckConstraint("woken_by IN ('notification', 'timer', 'start')", name="woken_by"),
    partial_index("ix_resizes_unwoken", "woken_at IS NULL", "id"),
    sqlite_autoincrement=True,
)

resize_nodes = Table(
    "resize_nodes",
    metadata,
    Column("resize_id", Id, ForeignKey("resizes.id"), primary_key=True),
    Column("node_id", Id, ForeignKey("nodes.id"), primary_key=True, index=True),
)

allocations = Table(
    "allocations",
    metadata,
    Column("id", Id, primary_key=True),
    Column("job_id", Id, nullable=False),
    Column("fence", Integer, nullable=False),
    Column("node_id", Id, nullable=False),
    Column("slot", Text, nullable=False),
    Column("grown_by", Id, ForeignKey("resizes.id"), nullable=False, index=True),
    Column("shrunk_by", Id, ForeignKey("resizes.id"), index=True),
    Column("decided_at", Double, nullable=False, index=True),
    Column("handed_at", Double),  # when first listed to the agent; from then on a process may exist
    Column("started_at", Double),
    Column("joined_at", Double),
    Column("counted_at", Double),
    Column("release_asked_at", Double),
    Column("until_joined", Boolean, nullable=False, server_default=false()),  # kept until an engine elsewhere joined
    Column("released_at", Double, index=True),
    Column("kind", Text),
    ForeignKeyConstraint(["node_id", "slot"], ["slots.node_id", "slots.slot"]),
    ForeignKeyConstraint(
        ["job_id", "fence", "node_id"], ["supervisors.job_id", "supervisors.fence", "supervisors.node_id"]
    ),
    # The invariant of the whole platform: a slot has at most one open allocation.
    partial_index("uq_allocations_open", "released_at IS NULL", "node_id", "slot", unique=True),
    Index("ix_allocations_job", "job_id", "fence"),
    sqlite_autoincrement=True,
)


# ── the outbox, the heartbeat of the APIs, the home that belongs to this database, and the feed of changes ───────────

outbox = Table(
    "outbox",
    metadata,
    Column("id", Id, primary_key=True),
    Column("queue", Text, nullable=False),
    Column("task", Text, nullable=False),
    Column("arguments", Json, nullable=False),
    Column("resize_id", Id, ForeignKey("resizes.id")),  # the resize whose notified_at the relay sets
    Column("created_at", Double, nullable=False),
    sqlite_autoincrement=True,
)

api_heartbeat = Table(
    "api_heartbeat",
    metadata,
    Column("id", Id, primary_key=True),
    Column("counter", BigInteger, nullable=False, server_default="0"),  # increases while any API serves
    CheckConstraint("id = 1", name="one"),
)

home = Table(
    "home",
    metadata,
    Column("id", Id, primary_key=True),
    Column("home_id", Text, nullable=False),  # the same id as in the home's file home-id
    Column("path", Text, nullable=False),  # where the home was when the two were paired
    Column("since", Double, nullable=False),
    Column("wiped_at", Double, nullable=False, server_default="0"),  # when earlier plain text was wiped; 0: never
    CheckConstraint("id = 1", name="one"),
)

changes = Table(
    "changes",  # written by triggers alone
    metadata,
    Column("id", Id, primary_key=True),
    Column("xid", BigInteger, nullable=False, index=True),  # PostgreSQL: number of the transaction; SQLite: 0
    Column("topic", Text, nullable=False),  # job, node, allocation, resize, attempt
    Column("key", BigInteger, nullable=False),  # id of the changed row; an ended attempt: its job's id
    Column("time", Double, nullable=False),  # the database's clock
    sqlite_autoincrement=True,
)
