-- The queue's tables, version 2. Every name begins with litequeue_, so that they can live beside an application's own.
-- Times are µs since the epoch; lease_deadline is by the lease clock. State codes: 0 pending, 1 leased, 2 completed,
-- 3 retryable, 4 dead, 5 scheduled, 6 cancelled, 7 waiting for other jobs. Do not write to these tables by hand: no
-- guarantee survives it.

-- One row: which schema this is; a number that grows whenever a setting or the lease clock's offset changes; and how many
-- gates there have been.
CREATE TABLE litequeue_meta (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    schema_version INTEGER NOT NULL,
    settings_version INTEGER NOT NULL,
    last_gate INTEGER NOT NULL DEFAULT 0
) STRICT;

-- One row, written once a boot: the lease clock is the host's monotonic clock plus this offset.
CREATE TABLE litequeue_host (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    boot_id TEXT NOT NULL,
    lease_offset INTEGER NOT NULL
) STRICT;

-- The jobs, in the order in which they are leased. A transition moves a row from one key to the next.
CREATE TABLE litequeue_job (
    scope TEXT NOT NULL,
    state INTEGER NOT NULL CHECK (state BETWEEN 0 AND 7),
    priority INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    job_id BLOB NOT NULL,
    kind TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    reaps INTEGER NOT NULL,
    max_attempts INTEGER,
    lease_generation INTEGER NOT NULL,
    worker_id TEXT,
    holder INTEGER,
    leased_at INTEGER,
    lease_deadline INTEGER CHECK ((state = 1) = (lease_deadline IS NOT NULL)),
    beats INTEGER NOT NULL,
    checkpoints INTEGER NOT NULL,
    last_beat_at INTEGER,
    not_before INTEGER CHECK ((state IN (3, 5)) = (not_before IS NOT NULL)),
    expires_at INTEGER,
    finished_at INTEGER CHECK ((state IN (2, 4, 6)) = (finished_at IS NOT NULL)),
    idempotency_key TEXT,
    events BLOB NOT NULL,
    PRIMARY KEY (scope, state, priority, created_at, job_id)
) WITHOUT ROWID, STRICT;

-- Ready work by kind: lease filters, and the walk over the kinds that a prefix matches.
CREATE INDEX litequeue_job_ready ON litequeue_job (scope, kind, priority, created_at, job_id)
    WHERE state = 0;

-- Held leases by deadline, over all scopes: what has lapsed; and, from the index alone, what a dead holder held.
CREATE INDEX litequeue_job_deadline ON litequeue_job (lease_deadline, holder)
    WHERE state = 1;

-- Gated jobs by due time, within a scope: other scopes' due jobs must not hide one's own.
CREATE INDEX litequeue_job_due ON litequeue_job (scope, not_before)
    WHERE state IN (3, 5);

-- The same over all scopes: whether anything is due at all, and when.
CREATE INDEX litequeue_job_due_anywhere ON litequeue_job (not_before)
    WHERE state IN (3, 5);

-- Waiting jobs that must start by a time.
CREATE INDEX litequeue_job_expiry ON litequeue_job (scope, expires_at)
    WHERE expires_at IS NOT NULL AND state IN (0, 3, 5, 7);

-- The same over all scopes.
CREATE INDEX litequeue_job_expiry_anywhere ON litequeue_job (expires_at)
    WHERE expires_at IS NOT NULL AND state IN (0, 3, 5, 7);

-- One active job for each key.
CREATE UNIQUE INDEX litequeue_job_key ON litequeue_job (scope, kind, idempotency_key)
    WHERE idempotency_key IS NOT NULL AND state IN (0, 1, 3, 5, 7);

-- The latest completed job of a key, for the window after completion.
CREATE INDEX litequeue_job_key_done ON litequeue_job (scope, kind, idempotency_key, finished_at)
    WHERE idempotency_key IS NOT NULL AND state = 2;

-- The payload, apart from the row that moves; and, by id, the parts of the job's key that never change.
CREATE TABLE litequeue_body (
    job_id BLOB PRIMARY KEY,
    scope TEXT NOT NULL,
    priority INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    payload BLOB NOT NULL
) WITHOUT ROWID, STRICT;

-- What the last run left, when it left anything.
CREATE TABLE litequeue_outcome (
    job_id BLOB PRIMARY KEY,
    result BLOB,
    last_error TEXT
) WITHOUT ROWID, STRICT;

-- The checkpoint of a lease that lives.
CREATE TABLE litequeue_continuation (
    job_id BLOB PRIMARY KEY,
    data BLOB NOT NULL,
    progress REAL,
    note TEXT
) WITHOUT ROWID, STRICT;

-- The newest trigger of a key whose job is running (on_conflict = reset), by the running job.
CREATE TABLE litequeue_rerun (
    job_id BLOB PRIMARY KEY,
    priority INTEGER NOT NULL,
    not_before INTEGER,
    expires_at INTEGER,
    max_attempts INTEGER,
    payload BLOB NOT NULL
) WITHOUT ROWID, STRICT;

-- Which queue handle an id stands for; ids are never used again. While it lives, the byte at the offset of its id in
-- the sidecar <file>-lock is locked, provided that the sidecar is still the one named here (device:inode; NULL where
-- there are no such locks). A reboot empties the table.
CREATE TABLE litequeue_holder (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    pid INTEGER NOT NULL,
    host TEXT NOT NULL,
    since INTEGER NOT NULL,
    sidecar TEXT
) STRICT;

-- The file's own settings; what is absent has its default. Durations are seconds, NULL is "forever" or "no limit".
CREATE TABLE litequeue_setting (
    name TEXT PRIMARY KEY,
    value ANY
) WITHOUT ROWID, STRICT;

-- Settings of a kind, or of a prefix that ends in a colon; the longest match wins.
CREATE TABLE litequeue_kind_setting (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    value ANY,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID, STRICT;

-- Settings that hold within a scope by itself; the scope litequeue:each is each one that has none of its own. The kind is
-- a filter as above, empty for all kinds.
CREATE TABLE litequeue_scope_setting (
    scope TEXT NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    value ANY,
    PRIMARY KEY (scope, kind, name)
) WITHOUT ROWID, STRICT;

-- What is not to be leased: a kind filter (empty for all kinds) in a scope (litequeue:all for all scopes).
CREATE TABLE litequeue_pause (
    scope TEXT NOT NULL,
    kind TEXT NOT NULL,
    since INTEGER NOT NULL,
    PRIMARY KEY (scope, kind)
) WITHOUT ROWID, STRICT;

-- The leased jobs that a limit counts, for no other job. The kind is the filter that the setting `concurrency` belongs to
-- (empty for the file's own), the scope that within which it is counted, or litequeue:all.
CREATE TABLE litequeue_slot (
    kind TEXT NOT NULL,
    scope TEXT NOT NULL,
    job_id BLOB NOT NULL,
    PRIMARY KEY (kind, scope, job_id)
) WITHOUT ROWID, STRICT;

-- What is left of a `rate`, by its kind filter: credit at a time of the lease clock. One that is missing is full.
CREATE TABLE litequeue_bucket (
    kind TEXT PRIMARY KEY,
    credit INTEGER NOT NULL,
    at INTEGER NOT NULL
) WITHOUT ROWID, STRICT;

-- What is enqueued again and again. `boundary` is when next: it is only advanced together with the enqueue of its job,
-- and only from the value that was seen, so that no boundary is ever fired twice. `fired` and `skipped` count boundaries.
CREATE TABLE litequeue_schedule (
    name TEXT PRIMARY KEY,
    spec TEXT NOT NULL,
    timezone TEXT NOT NULL,
    kind TEXT NOT NULL,
    scope TEXT NOT NULL,
    priority INTEGER NOT NULL,
    max_attempts INTEGER,
    expires_us INTEGER,
    misfire TEXT NOT NULL CHECK (misfire IN ('all', 'latest', 'skip')),
    is_paused INTEGER NOT NULL CHECK (is_paused IN (0, 1)),
    boundary INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    last_boundary INTEGER,
    last_fired_at INTEGER,
    fired INTEGER NOT NULL,
    skipped INTEGER NOT NULL,
    payload BLOB NOT NULL
) WITHOUT ROWID, STRICT;

-- The schedules by when they are next.
CREATE INDEX litequeue_schedule_due ON litequeue_schedule (boundary)
    WHERE is_paused = 0;

-- How many jobs in a row a scope is served of where leases go round the scopes; one that is missing has 1.
CREATE TABLE litequeue_weight (
    scope TEXT PRIMARY KEY,
    weight INTEGER NOT NULL CHECK (weight BETWEEN 2 AND 1000)
) WITHOUT ROWID, STRICT;

-- Whose turn it is, for each filter of kinds that such leases have (a JSON array, or the digest of a long one; empty for
-- all kinds): the scope, and how many of its jobs have been leased in this turn. Only the latest 1,000 filters are kept.
CREATE TABLE litequeue_turn (
    kinds TEXT PRIMARY KEY,
    scope TEXT NOT NULL,
    served INTEGER NOT NULL,
    moved_at INTEGER NOT NULL
) WITHOUT ROWID, STRICT;

-- The messages of outboxes that have a key and are not delivered yet, in their order within the key. The first of a key
-- is a job by its message's id, which has the payload; the next one becomes a job in the commit in which that ends.
CREATE TABLE litequeue_outbox (
    scope TEXT NOT NULL,
    key TEXT NOT NULL,
    position INTEGER NOT NULL,
    job_id BLOB NOT NULL,
    payload BLOB,
    PRIMARY KEY (scope, key, position)
) WITHOUT ROWID, STRICT;

-- A message by its id.
CREATE UNIQUE INDEX litequeue_outbox_message ON litequeue_outbox (job_id);

-- What a job waits for (state 7), or has waited for, as long as the job is there: how many other jobs, its parents, how
-- those have ended, and how many it has yet to be told of. It waits exactly while some are missing. `not_before` is the
-- job's delay, which counts once none is. Ids are never used again.
CREATE TABLE litequeue_gate (
    id INTEGER PRIMARY KEY,
    job_id BLOB NOT NULL,
    parents INTEGER NOT NULL,
    missing INTEGER NOT NULL CHECK (missing BETWEEN 0 AND parents),
    completed INTEGER NOT NULL,
    dead INTEGER NOT NULL,
    cancelled INTEGER NOT NULL,
    on_parent_failure TEXT NOT NULL CHECK (on_parent_failure IN ('cancel', 'run')),
    not_before INTEGER
) WITHOUT ROWID, STRICT;

-- The gate of a job.
CREATE UNIQUE INDEX litequeue_gate_job ON litequeue_gate (job_id);

-- The jobs that a gate is missing: those that have not ended, and those of whose end it has not been told.
CREATE TABLE litequeue_dependency (
    parent_id BLOB NOT NULL,
    gate INTEGER NOT NULL,
    PRIMARY KEY (parent_id, gate)
) WITHOUT ROWID, STRICT;

-- The same by the gate.
CREATE INDEX litequeue_dependency_gate ON litequeue_dependency (gate, parent_id);

-- What gates are to be told, in this order and in steps: a job has ended so, which concerns those up to this gate that
-- miss it; or, where no job is named, this gate's job waits no more, and what it misses is to be forgotten.
CREATE TABLE litequeue_notice (
    id INTEGER PRIMARY KEY,
    gate INTEGER NOT NULL,
    parent_id BLOB,
    state INTEGER CHECK (state IN (2, 4, 6)),
    CHECK ((parent_id IS NULL) = (state IS NULL))
) WITHOUT ROWID, STRICT;

-- For someone with the sqlite3 shell (only while no program uses the file through another SQLite: see the README).
CREATE VIEW litequeue_jobs AS
SELECT lower(hex(job_id)) AS job_id,
    CASE scope WHEN '' THEN '(system)' ELSE scope END AS scope,
    CASE state
        WHEN 0 THEN 'pending' WHEN 1 THEN 'leased' WHEN 2 THEN 'completed' WHEN 3 THEN 'retryable'
        WHEN 4 THEN 'dead' WHEN 5 THEN 'scheduled' WHEN 6 THEN 'cancelled'
        WHEN 7 THEN 'waiting'
    END AS state,
    kind,
    priority,
    attempts,
    reaps,
    worker_id,
    idempotency_key,
    strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1000000.0, 'unixepoch') AS created_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', leased_at / 1000000.0, 'unixepoch') AS leased_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', not_before / 1000000.0, 'unixepoch') AS not_before,
    strftime('%Y-%m-%dT%H:%M:%fZ', expires_at / 1000000.0, 'unixepoch') AS expires_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', finished_at / 1000000.0, 'unixepoch') AS finished_at
FROM litequeue_job;
