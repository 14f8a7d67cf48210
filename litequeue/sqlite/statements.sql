-- Every statement that the queue runs, named. A part is text that several statements share, put in where <name> stands.
-- Indexes are pinned where the planner has been seen to choose badly (DESIGN §2). A write on a job always matches its
-- full key and its generation, and the number of changed rows is checked.
--
-- A row sought by all columns of an index is compared a second time, as +column: in a damaged b-tree whose rows are out
-- of order, SQLite may stop at the wanted row's neighbour, and believes that it is the one. The + keeps the comparison
-- out of the seek; it costs a few instructions on a row that is read anyway.

-- part: row
job.scope, job.state, job.priority, job.created_at, job.job_id, job.kind, job.attempts, job.reaps, job.max_attempts,
job.lease_generation, job.worker_id, job.lease_deadline, job.beats, job.checkpoints, job.last_beat_at, job.not_before,
job.expires_at, job.finished_at, job.idempotency_key, length(job.events)

-- part: of_job
job_id = :job_id AND +job_id = :job_id

-- part: key
scope = ? AND state = ? AND priority = ? AND created_at = ? AND <of_job>

-- part: record
job.job_id, job.scope, job.state, job.priority, job.created_at, job.kind, job.attempts, job.reaps, job.max_attempts,
job.lease_generation, job.worker_id, job.holder, job.leased_at, job.lease_deadline, job.beats, job.checkpoints,
job.last_beat_at, job.not_before, job.expires_at, job.finished_at, job.idempotency_key, outcome.last_error,
continuation.data, continuation.progress, continuation.note, body.payload, outcome.result, job.events

-- part: own_body
-- The rest of the key is for damaged files: a flipped bit makes one job's id its neighbour's.
body.job_id = job.job_id AND +body.job_id = job.job_id AND body.scope = job.scope AND body.priority = job.priority
    AND body.created_at = job.created_at

-- part: own_outcome
outcome.job_id = job.job_id AND +outcome.job_id = job.job_id

-- part: own_continuation
continuation.job_id = job.job_id AND +continuation.job_id = job.job_id

-- part: job_of_body
job.scope = body.scope AND job.state IN (0, 1, 2, 3, 4, 5, 6, 7) AND job.priority = body.priority
    AND job.created_at = body.created_at AND job.job_id = body.job_id AND +job.job_id = body.job_id

-- ## What every process agrees on

-- name: settings_version
-- One row, read when any commit came between; the settings are read again when the number differs.
SELECT settings_version FROM litequeue_meta;

-- name: lock
-- Takes the write lock and writes nothing, in a transaction that somebody else has begun, perhaps only to read.
UPDATE main.litequeue_meta SET settings_version = settings_version WHERE 0;

-- name: settings_changed
UPDATE litequeue_meta SET settings_version = settings_version + 1;

-- name: settings
SELECT name, value FROM litequeue_setting;

-- name: kind_settings
SELECT kind, name, value FROM litequeue_kind_setting;

-- name: setting_put
INSERT INTO litequeue_setting (name, value) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: setting_remove
DELETE FROM litequeue_setting WHERE name = ?;

-- name: kind_setting_put
INSERT INTO litequeue_kind_setting (kind, name, value) VALUES (?, ?, ?)
ON CONFLICT (kind, name) DO UPDATE SET value = excluded.value;

-- name: kind_setting_remove
DELETE FROM litequeue_kind_setting WHERE kind = ? AND name = ?;

-- name: scope_settings
SELECT scope, kind, name, value FROM litequeue_scope_setting;

-- name: scope_setting_put
INSERT INTO litequeue_scope_setting (scope, kind, name, value) VALUES (?, ?, ?, ?)
ON CONFLICT (scope, kind, name) DO UPDATE SET value = excluded.value;

-- name: scope_setting_remove
DELETE FROM litequeue_scope_setting WHERE scope = ? AND kind = ? AND name = ?;

-- name: pauses
SELECT scope, kind, since FROM litequeue_pause;

-- name: pause_put
INSERT INTO litequeue_pause (scope, kind, since) VALUES (?, ?, ?) ON CONFLICT (scope, kind) DO NOTHING;

-- name: pause_remove
DELETE FROM litequeue_pause WHERE scope = ? AND kind = ?;

-- name: weights
SELECT scope, weight FROM litequeue_weight ORDER BY scope;

-- name: weight_put
INSERT INTO litequeue_weight (scope, weight) VALUES (?, ?)
ON CONFLICT (scope) DO UPDATE SET weight = excluded.weight;

-- name: weight_remove
DELETE FROM litequeue_weight WHERE scope = ?;

-- name: host
SELECT boot_id, lease_offset FROM litequeue_host;

-- name: host_booted
UPDATE litequeue_host SET boot_id = ?, lease_offset = ?;

-- name: host_unbooted
-- No boot has this id: the next opening is the first one after a boot, at which all leases lapse.
UPDATE litequeue_host SET boot_id = '';

-- name: latest_deadline
SELECT max(lease_deadline) FROM litequeue_job INDEXED BY litequeue_job_deadline WHERE state = 1;

-- name: holder_add
INSERT INTO litequeue_holder (pid, host, since, sidecar) VALUES (?, ?, ?, ?);

-- name: holder_remove
DELETE FROM litequeue_holder WHERE id = ?;

-- name: holders_clear
DELETE FROM litequeue_holder;

-- name: holders
SELECT id, sidecar FROM litequeue_holder ORDER BY id;

-- name: handles
SELECT id, pid, host, since, sidecar FROM litequeue_holder ORDER BY id;

-- ## Enqueue

-- name: tail
-- The last pending job of a scope and priority: one seek at the end of the range that is about to grow.
SELECT created_at FROM litequeue_job
WHERE scope = ? AND state = 0 AND priority = ? ORDER BY created_at DESC LIMIT 1;

-- name: tail_waiting
-- The same of the jobs that wait for others: those that are let go together go in the order in which they came.
SELECT created_at FROM litequeue_job
WHERE scope = ? AND state = 7 AND priority = ? ORDER BY created_at DESC LIMIT 1;

-- name: job_add
INSERT INTO litequeue_job (scope, state, priority, created_at, job_id, kind, attempts, reaps, max_attempts,
    lease_generation, beats, checkpoints, not_before, expires_at, idempotency_key, events)
VALUES (?, ?, ?, ?, ?, ?, 0, 0, ?, 0, 0, 0, ?, ?, ?, ?);

-- name: body_add
INSERT INTO litequeue_body (job_id, scope, priority, created_at, payload) VALUES (?, ?, ?, ?, ?);

-- name: body_replace
UPDATE litequeue_body SET priority = ?, created_at = ?, payload = ? WHERE <of_job>;

-- name: body_moved
-- The payload stays, and is written again all the same: it lies in the same row.
UPDATE litequeue_body SET priority = ?, created_at = ? WHERE <of_job>;

-- name: row_by_id
-- One statement over body and job: separate seeks miss a job that moves between them (DESIGN §2). CROSS JOIN keeps the
-- order of the tables, whatever ANALYZE has found.
SELECT <row>
FROM litequeue_body AS body
CROSS JOIN litequeue_job AS job NOT INDEXED ON <job_of_body>
WHERE body.job_id = :job_id AND +body.job_id = :job_id;

-- name: row_by_key
-- Without the CAST SQLite would put the wanted key in the place of the column that is compared again.
SELECT <row> FROM litequeue_job AS job INDEXED BY litequeue_job_key
WHERE job.idempotency_key IS NOT NULL AND job.state IN (0, 1, 3, 5, 7)
    AND job.scope = ? AND job.kind = ? AND job.idempotency_key = CAST(:key AS TEXT) AND +job.idempotency_key = :key;

-- name: row_by_done_key
-- The window after completion; finished_at is in the index, so a key's earlier runs are not walked.
SELECT <row> FROM litequeue_job AS job INDEXED BY litequeue_job_key_done
WHERE job.idempotency_key IS NOT NULL AND job.state = 2
    AND job.scope = ? AND job.kind = ? AND job.idempotency_key = ? AND job.finished_at > ?
ORDER BY job.finished_at DESC LIMIT 1;

-- name: rekey
-- A job queued anew, reset or folded: it may change its place, its gate and its counts.
UPDATE litequeue_job
SET state = ?, priority = ?, created_at = ?, attempts = ?, reaps = ?, max_attempts = ?, not_before = ?, expires_at = ?,
    finished_at = NULL, idempotency_key = ?, events = CAST(events || ? AS BLOB)
WHERE <key> AND lease_generation = ?;

-- name: rerun_put
INSERT INTO litequeue_rerun (job_id, priority, not_before, expires_at, max_attempts, payload) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (job_id) DO UPDATE SET priority = excluded.priority, not_before = excluded.not_before,
    expires_at = excluded.expires_at, max_attempts = excluded.max_attempts, payload = excluded.payload;

-- name: rerun
SELECT priority, not_before, expires_at, max_attempts, payload FROM litequeue_rerun WHERE <of_job>;

-- name: rerun_remove
DELETE FROM litequeue_rerun WHERE <of_job>;

-- ## Outboxes

-- name: outbox_add
INSERT INTO litequeue_outbox (scope, key, position, job_id, payload) VALUES (?, ?, ?, ?, ?);

-- name: outbox_message
-- Where a message stands that is not delivered, and whether others of its key are before it.
SELECT scope, key, position, payload IS NOT NULL FROM litequeue_outbox INDEXED BY litequeue_outbox_message
WHERE <of_job>;

-- name: outbox_first
SELECT position, job_id, payload FROM litequeue_outbox NOT INDEXED
WHERE scope = ? AND key = ? ORDER BY position LIMIT 1;

-- name: outbox_last
SELECT position FROM litequeue_outbox NOT INDEXED WHERE scope = ? AND key = ? ORDER BY position DESC LIMIT 1;

-- name: outbox_begin
-- The payload is the job's from here on.
UPDATE litequeue_outbox NOT INDEXED SET payload = NULL
WHERE scope = ? AND key = ? AND position = ? AND <of_job> AND payload IS NOT NULL;

-- name: outbox_remove
DELETE FROM litequeue_outbox NOT INDEXED WHERE scope = ? AND key = ? AND position = ? AND <of_job>;

-- name: outbox_waiting
SELECT count(*) FROM litequeue_outbox NOT INDEXED WHERE scope = ? AND payload IS NOT NULL;

-- ## Chains: what waits for other jobs to end

-- name: is_chained
-- Whether verbs have to ask: a file that never had a chain pays nothing. It is never taken back: what a handle remembers of
-- the settings would else be wrong, with the same version, when the last gate has gone and another one comes.
SELECT last_gate > 0 FROM litequeue_meta;

-- name: gate_begun
-- An id is never used again, and no table here has row ids: the last one of a connection is its application's.
UPDATE litequeue_meta SET last_gate = last_gate + 1;

-- name: last_gate
SELECT last_gate FROM litequeue_meta;

-- name: gate_add
INSERT INTO litequeue_gate (id, job_id, parents, missing, completed, dead, cancelled, on_parent_failure, not_before)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: gate_of_job
SELECT id, parents, missing, completed, dead, cancelled, on_parent_failure, not_before
FROM litequeue_gate INDEXED BY litequeue_gate_job WHERE <of_job>;

-- name: gate_close
UPDATE litequeue_gate SET missing = 0 WHERE id = ? AND missing > 0;

-- name: gate_delay
UPDATE litequeue_gate SET not_before = ? WHERE <of_job>;

-- name: gate_remove
DELETE FROM litequeue_gate WHERE <of_job>;

-- name: gate_told
-- One parent has ended.
UPDATE litequeue_gate
SET missing = missing - 1, completed = completed + ?, dead = dead + ?, cancelled = cancelled + ?
WHERE id = ? AND missing > 0;

-- name: dependency_add
INSERT INTO litequeue_dependency (parent_id, gate) VALUES (?, ?);

-- name: dependency_remove
DELETE FROM litequeue_dependency WHERE parent_id = ? AND gate = ?;

-- name: last_gate_of_parent
-- The latest gate that misses a job; NULL where none does.
SELECT max(gate) FROM litequeue_dependency NOT INDEXED WHERE parent_id = ?;

-- name: gates_of_parent
-- The gates that miss a job, up to one, in the order in which they were made; without what belongs to it where a gate
-- has gone with its job.
SELECT dependency.gate, gate.job_id, gate.missing, gate.on_parent_failure, gate.not_before
FROM litequeue_dependency AS dependency NOT INDEXED
LEFT JOIN litequeue_gate AS gate ON gate.id = dependency.gate
WHERE dependency.parent_id = ? AND dependency.gate <= ? ORDER BY dependency.gate LIMIT ?;

-- name: parents_of_gate
SELECT parent_id FROM litequeue_dependency INDEXED BY litequeue_dependency_gate
WHERE gate = ? ORDER BY parent_id LIMIT ?;

-- name: children
SELECT count(*) FROM litequeue_dependency NOT INDEXED WHERE parent_id = ?;

-- name: notice_add
INSERT INTO litequeue_notice (id, gate, parent_id, state)
SELECT coalesce(max(id), 0) + 1, ?, ?, ? FROM litequeue_notice;

-- name: notice_first
SELECT id, gate, parent_id, state FROM litequeue_notice WHERE id > 0 ORDER BY id LIMIT 1;

-- name: notice_remove
DELETE FROM litequeue_notice WHERE id = ?;

-- name: pages_used
-- What max_bytes limits: the pages in use, without those that deleted jobs have left for reuse.
SELECT (page_count - freelist_count) * page_size
FROM pragma_page_count, pragma_freelist_count, pragma_page_size;

-- name: room
-- What decides whether pages that deleted jobs have left for reuse are given back to the disk.
SELECT page_count, freelist_count, page_size, auto_vacuum
FROM pragma_page_count, pragma_freelist_count, pragma_page_size, pragma_auto_vacuum;

-- ## Lease

-- name: heads
-- The head of the queue: a bounded scan of the primary key. A missing body is found by the codec, not hidden here.
SELECT <row>, body.payload
FROM litequeue_job AS job NOT INDEXED
LEFT JOIN litequeue_body AS body ON <own_body>
WHERE job.scope = ? AND job.state = 0
ORDER BY job.priority, job.created_at, job.job_id LIMIT ?;

-- name: heads_of_kind
-- The same for one kind, from the index alone; the rows are read once the heads of all kinds are merged.
SELECT priority, created_at, job_id FROM litequeue_job INDEXED BY litequeue_job_ready
WHERE state = 0 AND scope = ? AND kind = ?
ORDER BY priority, created_at, job_id LIMIT ?;

-- name: kind_from
-- One step of the walk over the distinct kinds of ready jobs; the planner would read every row of the range.
SELECT kind FROM litequeue_job INDEXED BY litequeue_job_ready
WHERE state = 0 AND scope = ? AND kind >= ? AND kind < ? ORDER BY kind LIMIT 1;

-- name: head
SELECT <row>, body.payload
FROM litequeue_job AS job NOT INDEXED
LEFT JOIN litequeue_body AS body ON <own_body>
WHERE job.scope = ? AND job.state = 0 AND job.priority = ? AND job.created_at = ? AND job.job_id = :job_id
    AND +job.job_id = :job_id;

-- name: turn
SELECT scope, served FROM litequeue_turn WHERE kinds = ?;

-- name: turns
SELECT scope, served FROM litequeue_turn;

-- name: turn_put
INSERT INTO litequeue_turn (kinds, scope, served, moved_at) VALUES (?, ?, ?, ?)
ON CONFLICT (kinds) DO UPDATE SET scope = excluded.scope, served = excluded.served, moved_at = excluded.moved_at;

-- name: turns_prune
DELETE FROM litequeue_turn
WHERE kinds IN (SELECT kinds FROM litequeue_turn ORDER BY moved_at DESC LIMIT -1 OFFSET ?);

-- name: ready_scope
-- The next scope that has ready jobs, between two names: one seek, whatever else the scopes before it hold.
SELECT scope FROM litequeue_job INDEXED BY litequeue_job_ready
WHERE state = 0 AND scope >= ? AND scope < ? ORDER BY scope LIMIT 1;

-- name: ready_scope_of_kinds
-- The same for ranges of kinds, [[from, below], ...]: a walk that ends at a scope with such a job, after so many scopes,
-- or with NULL where there are no more. It is a statement of its own for its speed: a seek each from Python takes twice
-- as long.
WITH RECURSIVE walk (scope, looked) AS (
    SELECT (
        SELECT job.scope FROM litequeue_job AS job INDEXED BY litequeue_job_ready
        WHERE job.state = 0 AND job.scope >= ?1 AND job.scope < ?2 ORDER BY job.scope LIMIT 1
    ), 1
    UNION ALL
    SELECT (
        SELECT job.scope FROM litequeue_job AS job INDEXED BY litequeue_job_ready
        WHERE job.state = 0 AND job.scope > walk.scope AND job.scope < ?2 ORDER BY job.scope LIMIT 1
    ), looked + 1
    FROM walk
    WHERE walk.scope IS NOT NULL AND looked < ?4 AND NOT EXISTS (
        SELECT 1 FROM json_each(?3) AS kinds CROSS JOIN litequeue_job AS job INDEXED BY litequeue_job_ready
        WHERE job.state = 0 AND job.scope = walk.scope AND job.kind >= kinds.value ->> 0
            AND job.kind < kinds.value ->> 1
    )
)
SELECT scope, max(looked) FROM walk;

-- name: lease
UPDATE litequeue_job
SET state = 1, attempts = attempts + 1, lease_generation = lease_generation + 1, worker_id = ?, holder = ?,
    leased_at = ?, lease_deadline = ?, events = CAST(events || ? AS BLOB)
WHERE scope = ? AND state = 0 AND priority = ? AND created_at = ? AND <of_job> AND lease_generation = ?;

-- ## Limits

-- name: slots_taken
-- Counts up to a limit and no further; kind and scope are the limit's.
SELECT count(*) FROM (SELECT 1 FROM litequeue_slot WHERE kind = ? AND scope = ? LIMIT ?);

-- name: slot_add
INSERT INTO litequeue_slot (kind, scope, job_id) VALUES (?, ?, ?);

-- name: slot_remove
DELETE FROM litequeue_slot WHERE kind = ? AND scope = ? AND job_id = ?;

-- name: slots_clear
DELETE FROM litequeue_slot;

-- name: leased_kinds
SELECT kind, scope, job_id FROM litequeue_job INDEXED BY litequeue_job_deadline WHERE state = 1;

-- name: bucket
SELECT credit, at FROM litequeue_bucket WHERE kind = ?;

-- name: bucket_put
INSERT INTO litequeue_bucket (kind, credit, at) VALUES (?, ?, ?)
ON CONFLICT (kind) DO UPDATE SET credit = excluded.credit, at = excluded.at;

-- name: bucket_remove
DELETE FROM litequeue_bucket WHERE kind = ?;

-- name: buckets_booted
-- The lease clock has moved: what a bucket holds stays, and grows from now on.
UPDATE litequeue_bucket SET at = ?;

-- ## What a holder says: each matches the full key, the worker and the generation

-- part: fence
scope = ? AND state = 1 AND priority = ? AND created_at = ? AND <of_job> AND worker_id = ? AND lease_generation = ?

-- name: held
SELECT <row> FROM litequeue_job AS job NOT INDEXED WHERE <fence>;

-- name: held_to_complete
-- The same, and whether an earlier run has left an error or a result, which a success clears; a lookup more here is
-- cheaper than a statement that mostly finds nothing to remove.
SELECT <row>, EXISTS (SELECT 1 FROM litequeue_outcome AS outcome WHERE <own_outcome>)
FROM litequeue_job AS job NOT INDEXED WHERE <fence>;

-- name: extend
UPDATE litequeue_job SET lease_deadline = ?, beats = beats + 1, last_beat_at = ? WHERE <fence>;

-- name: checkpoint
UPDATE litequeue_job SET lease_deadline = ?, checkpoints = checkpoints + 1, last_beat_at = ? WHERE <fence>;

-- name: retake
-- A run that failed and the lease of the next one, to the same worker: it never leaves its place in the order. A move to
-- its gate and a lease from there would write every tree that has the state in it twice.
UPDATE litequeue_job
SET attempts = attempts + 1, lease_generation = lease_generation + 1, holder = ?, leased_at = ?, lease_deadline = ?,
    beats = 0, checkpoints = 0, last_beat_at = NULL, events = CAST(events || ? AS BLOB)
WHERE <fence>;

-- name: continuation_put
-- What is not given stays. Data that was never given is empty: the row has to be there, because the job counts it.
INSERT INTO litequeue_continuation (job_id, data, progress, note) VALUES (?1, coalesce(?2, x''), ?3, ?4)
ON CONFLICT (job_id) DO UPDATE SET data = coalesce(?2, data), progress = coalesce(?3, progress),
    note = coalesce(?4, note);

-- name: continuation_remove
DELETE FROM litequeue_continuation WHERE <of_job>;

-- ## Moves: every transition but the lease

-- name: move
UPDATE litequeue_job
SET state = ?, attempts = ?, reaps = ?, worker_id = NULL, holder = NULL, lease_deadline = NULL, beats = 0,
    checkpoints = 0, last_beat_at = NULL, not_before = ?, expires_at = ?, finished_at = ?,
    events = CAST(events || ? AS BLOB)
WHERE <key> AND worker_id IS ? AND lease_generation = ?;

-- name: events_append
UPDATE litequeue_job SET events = CAST(events || ? AS BLOB) WHERE <key> AND lease_generation = ?;

-- name: events_replace
UPDATE litequeue_job SET events = ? WHERE <key> AND lease_generation = ?;

-- name: events
SELECT events FROM litequeue_job NOT INDEXED WHERE <key>;

-- name: regate
-- A back-off set by a clock that has since stepped back.
UPDATE litequeue_job SET not_before = ?, events = CAST(events || ? AS BLOB) WHERE <key> AND lease_generation = ?;

-- name: outcome_put
INSERT INTO litequeue_outcome (job_id, result, last_error) VALUES (?, ?, ?)
ON CONFLICT (job_id) DO UPDATE SET result = excluded.result, last_error = excluded.last_error;

-- name: outcome_remove
DELETE FROM litequeue_outcome WHERE <of_job>;

-- name: job_remove
DELETE FROM litequeue_job WHERE <key> AND lease_generation = ?;

-- name: body_remove
DELETE FROM litequeue_body WHERE <of_job>;

-- ## Upkeep: candidates only, in the order and number asked for

-- name: lapsed
SELECT <row> FROM litequeue_job AS job INDEXED BY litequeue_job_deadline
WHERE job.state = 1 AND job.lease_deadline <= ? ORDER BY job.lease_deadline LIMIT ?;

-- name: held_by
-- All that a dead holder held: a walk over the index of held leases, which has the holder in it.
SELECT <row> FROM litequeue_job AS job INDEXED BY litequeue_job_deadline
WHERE job.state = 1 AND job.holder = ? ORDER BY job.lease_deadline;

-- name: due
SELECT <row> FROM litequeue_job AS job INDEXED BY litequeue_job_due
WHERE job.state IN (3, 5) AND job.scope = ? AND job.not_before <= ? ORDER BY job.not_before LIMIT ?;

-- name: due_anywhere
SELECT <row> FROM litequeue_job AS job INDEXED BY litequeue_job_due_anywhere
WHERE job.state IN (3, 5) AND job.not_before <= ? ORDER BY job.not_before LIMIT ?;

-- name: due_scope
-- The next scope that has due jobs, between two names: a walk like that of ready_scope_of_kinds.
WITH RECURSIVE walk (scope, looked) AS (
    SELECT (
        SELECT job.scope FROM litequeue_job AS job INDEXED BY litequeue_job_due
        WHERE job.state IN (3, 5) AND job.scope >= ?1 AND job.scope < ?2 ORDER BY job.scope LIMIT 1
    ), 1
    UNION ALL
    SELECT (
        SELECT job.scope FROM litequeue_job AS job INDEXED BY litequeue_job_due
        WHERE job.state IN (3, 5) AND job.scope > walk.scope AND job.scope < ?2 ORDER BY job.scope LIMIT 1
    ), looked + 1
    FROM walk
    WHERE walk.scope IS NOT NULL AND looked < ?4 AND NOT EXISTS (
        SELECT 1 FROM litequeue_job AS job INDEXED BY litequeue_job_due
        WHERE job.state IN (3, 5) AND job.scope = walk.scope AND job.not_before <= ?3
    )
)
SELECT scope, max(looked) FROM walk;

-- name: overdue
SELECT <row> FROM litequeue_job AS job INDEXED BY litequeue_job_expiry
WHERE job.expires_at IS NOT NULL AND job.state IN (0, 3, 5, 7) AND job.scope = ? AND job.expires_at <= ?
ORDER BY job.expires_at LIMIT ?;

-- name: overdue_anywhere
SELECT <row> FROM litequeue_job AS job INDEXED BY litequeue_job_expiry_anywhere
WHERE job.expires_at IS NOT NULL AND job.state IN (0, 3, 5, 7) AND job.expires_at <= ?
ORDER BY job.expires_at LIMIT ?;

-- name: distant
-- Back-offs beyond a time, after a place: candidates for pulling in after the wall clock stepped back.
SELECT <row> FROM litequeue_job AS job INDEXED BY litequeue_job_due_anywhere
WHERE job.state IN (3, 5) AND +job.state = 3
    AND (job.not_before, job.scope, job.state, job.priority, job.created_at, job.job_id) > (?, ?, ?, ?, ?, ?)
ORDER BY job.not_before, job.scope, job.state, job.priority, job.created_at, job.job_id LIMIT ?;

-- name: scope_from
-- One step of the walk over the distinct scopes.
SELECT scope FROM litequeue_job NOT INDEXED WHERE scope >= ? ORDER BY scope LIMIT 1;

-- name: group_after
-- One step of the walk over (scope, state, priority). For a row value SQLite seeks the first that is not less, even where
-- more is asked for: with > it would walk through the whole group that is to be left.
SELECT scope, state, priority FROM litequeue_job NOT INDEXED
WHERE (scope, state, priority) >= (?, ?, ? + 1) ORDER BY scope, state, priority LIMIT 1;

-- name: finished
-- Finished jobs of one group, oldest first, after a place in it; finished_at is never before created_at.
SELECT <row> FROM litequeue_job AS job NOT INDEXED
WHERE job.scope = ? AND job.state = ? AND job.priority = ? AND (job.created_at, job.job_id) > (?, ?)
    AND job.created_at <= ?
ORDER BY job.created_at, job.job_id LIMIT ?;

-- name: row_at
SELECT <row> FROM litequeue_job AS job NOT INDEXED WHERE <key>;

-- name: next_due
SELECT min(not_before) FROM litequeue_job INDEXED BY litequeue_job_due WHERE state IN (3, 5) AND scope = ?;

-- name: next_due_anywhere
SELECT min(not_before) FROM litequeue_job INDEXED BY litequeue_job_due_anywhere WHERE state IN (3, 5);

-- name: next_lapse
SELECT min(lease_deadline) FROM litequeue_job INDEXED BY litequeue_job_deadline WHERE state = 1;

-- ## Schedules

-- part: schedule
name, spec, timezone, kind, scope, priority, max_attempts, expires_us, misfire, is_paused, boundary, created_at,
last_boundary, last_fired_at, fired, skipped, payload

-- part: of_schedule
name = :name AND +name = :name

-- name: schedule_put
-- A schedule that is declared again keeps its pause, its history and its counts.
INSERT INTO litequeue_schedule (name, spec, timezone, kind, scope, priority, max_attempts, expires_us, misfire,
    is_paused, boundary, created_at, last_boundary, last_fired_at, fired, skipped, payload)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, NULL, NULL, 0, 0, ?)
ON CONFLICT (name) DO UPDATE SET spec = excluded.spec, timezone = excluded.timezone, kind = excluded.kind,
    scope = excluded.scope, priority = excluded.priority, max_attempts = excluded.max_attempts,
    expires_us = excluded.expires_us, misfire = excluded.misfire, boundary = excluded.boundary,
    payload = excluded.payload;

-- name: schedule
SELECT <schedule> FROM litequeue_schedule WHERE <of_schedule>;

-- name: schedules
SELECT <schedule> FROM litequeue_schedule ORDER BY name;

-- name: schedules_due
-- In the order of their boundaries, after a place in it.
SELECT <schedule> FROM litequeue_schedule INDEXED BY litequeue_schedule_due
WHERE is_paused = 0 AND boundary <= ? AND (boundary, name) > (?, ?) ORDER BY boundary, name LIMIT ?;

-- name: schedule_upcoming
SELECT min(boundary) FROM litequeue_schedule INDEXED BY litequeue_schedule_due WHERE is_paused = 0 AND boundary > ?;

-- name: schedule_advance
-- A compare-and-set on the boundary that the caller has seen: whoever comes second changes nothing.
UPDATE litequeue_schedule
SET boundary = ?, last_boundary = coalesce(?, last_boundary), last_fired_at = coalesce(?, last_fired_at),
    fired = fired + ?, skipped = skipped + ?
WHERE <of_schedule> AND boundary = ? AND is_paused = 0;

-- name: schedule_pause
UPDATE litequeue_schedule SET is_paused = 1 WHERE <of_schedule>;

-- name: schedule_resume
UPDATE litequeue_schedule SET is_paused = 0, boundary = ? WHERE <of_schedule>;

-- name: schedule_remove
DELETE FROM litequeue_schedule WHERE <of_schedule>;

-- ## Reads

-- name: record
SELECT <record>
FROM litequeue_body AS body
CROSS JOIN litequeue_job AS job NOT INDEXED ON <job_of_body>
LEFT JOIN litequeue_outcome AS outcome ON <own_outcome>
LEFT JOIN litequeue_continuation AS continuation ON <own_continuation>
WHERE body.job_id = :job_id AND +body.job_id = :job_id;

-- name: records
-- One page of one scope and state, in key order, after a place in it; a kind filter is (exact, from, below).
SELECT <record>
FROM litequeue_job AS job NOT INDEXED
LEFT JOIN litequeue_body AS body ON <own_body>
LEFT JOIN litequeue_outcome AS outcome ON <own_outcome>
LEFT JOIN litequeue_continuation AS continuation ON <own_continuation>
WHERE job.scope = ? AND job.state = ? AND (job.priority, job.created_at, job.job_id) > (?, ?, ?)
    AND (?6 IS NULL OR job.kind = ?6 OR (job.kind >= ?7 AND job.kind < ?8))
ORDER BY job.priority, job.created_at, job.job_id LIMIT ?9;

-- name: last_id
SELECT job_id FROM litequeue_body ORDER BY job_id DESC LIMIT 1;

-- name: export_ids
-- One step of the walk over all jobs, by what never changes of them; and whether a job has a gate.
SELECT job_id, EXISTS (SELECT 1 FROM litequeue_gate AS gate WHERE gate.job_id = body.job_id)
FROM litequeue_body AS body WHERE job_id > ? AND job_id <= ? ORDER BY job_id LIMIT ?;

-- name: export_gates
-- One step of the walk over the jobs that have a gate.
SELECT id, job_id FROM litequeue_gate WHERE id > ? AND id <= ? ORDER BY id LIMIT ?;

-- name: exported
-- A job, if it is in one of some states (a text of their codes), of a scope or of any, and of a kind as in `records`.
SELECT <record>
FROM litequeue_body AS body
CROSS JOIN litequeue_job AS job NOT INDEXED ON <job_of_body>
LEFT JOIN litequeue_outcome AS outcome ON <own_outcome>
LEFT JOIN litequeue_continuation AS continuation ON <own_continuation>
WHERE body.job_id = ?1 AND +body.job_id = ?1 AND instr(?2, job.state) AND (?3 IS NULL OR body.scope = ?3)
    AND (?4 IS NULL OR job.kind = ?4 OR (job.kind >= ?5 AND job.kind < ?6));

-- name: ids_between
-- The ids that begin with some digits are a range of the primary key.
SELECT job_id FROM litequeue_body WHERE job_id BETWEEN ? AND ? ORDER BY job_id LIMIT ?;

-- name: ids_between_in_state
-- Each of the range is looked up in that state: the rows of a job do not say its state by id.
SELECT job.job_id
FROM litequeue_body AS body
CROSS JOIN litequeue_job AS job NOT INDEXED
    ON job.scope = body.scope AND job.state = ?3 AND job.priority = body.priority
    AND job.created_at = body.created_at AND job.job_id = body.job_id AND +job.job_id = body.job_id
WHERE body.job_id BETWEEN ?1 AND ?2
ORDER BY body.job_id LIMIT ?4;

-- name: any_ready
SELECT 1 FROM litequeue_job NOT INDEXED WHERE scope = ? AND state = 0 LIMIT 1;

-- name: running_counts
-- From the index alone, which has the holder in it; of those that hold anything.
SELECT holder, count(*) FROM litequeue_job INDEXED BY litequeue_job_deadline WHERE state = 1 GROUP BY holder;

-- name: running
-- Of each holder so many leases, those that lapse first; only of these the rows are read.
WITH held AS (
    SELECT scope, priority, created_at, job_id, row_number() OVER (PARTITION BY holder ORDER BY lease_deadline) AS place
    FROM litequeue_job INDEXED BY litequeue_job_deadline WHERE state = 1
)
SELECT job.holder, job.job_id, job.scope, job.kind, job.worker_id, job.leased_at, job.lease_deadline,
    continuation.progress, continuation.note
FROM held
CROSS JOIN litequeue_job AS job NOT INDEXED ON job.scope = held.scope AND job.state = 1
    AND job.priority = held.priority AND job.created_at = held.created_at AND job.job_id = held.job_id
LEFT JOIN litequeue_continuation AS continuation ON <own_continuation>
WHERE held.place <= ?;

-- name: running_logs
-- Those whose lease was taken, or extended, last.
SELECT scope, kind, job_id, events FROM litequeue_job INDEXED BY litequeue_job_deadline
WHERE state = 1 ORDER BY lease_deadline DESC LIMIT ?;

-- name: group_youngest
SELECT created_at, job_id, kind, events FROM litequeue_job NOT INDEXED
WHERE scope = ? AND state = ? AND priority = ? ORDER BY created_at DESC, job_id DESC LIMIT ?;

-- name: group_since
SELECT created_at, job_id, kind, events FROM litequeue_job NOT INDEXED
WHERE scope = ? AND state = ? AND priority = ? AND (created_at, job_id) > (?, ?)
ORDER BY created_at, job_id LIMIT ?;

-- name: log_by_id
SELECT job.scope, job.state, job.kind, job.events
FROM litequeue_body AS body
CROSS JOIN litequeue_job AS job NOT INDEXED ON <job_of_body>
WHERE body.job_id = :job_id AND +body.job_id = :job_id;

-- name: counts
SELECT state, kind, count(*) FROM litequeue_job NOT INDEXED WHERE scope = ? GROUP BY state, kind;

-- name: oldest_ready
SELECT min(created_at) FROM litequeue_job NOT INDEXED WHERE scope = ? AND state = 0;

-- name: lapsed_count
SELECT count(*) FROM litequeue_job INDEXED BY litequeue_job_deadline
WHERE state = 1 AND lease_deadline <= ? AND scope = ?;


-- name: file_size
SELECT page_count * page_size, freelist_count * page_size
FROM pragma_page_count, pragma_freelist_count, pragma_page_size;

-- ## Surveys: what a whole file comes to, in bounded steps

-- name: survey_end
-- Where a step over so many jobs ends; nothing when fewer are left.
SELECT scope, state, priority, created_at, job_id FROM litequeue_job NOT INDEXED
WHERE (scope, state, priority, created_at, job_id) > (?, ?, ?, ?, ?)
ORDER BY scope, state, priority, created_at, job_id LIMIT 1 OFFSET ? - 1;

-- name: survey_jobs
-- Up to so many jobs after a place, counted.
SELECT scope, state, kind, count(*), sum(reaps) FROM (
    SELECT scope, state, kind, reaps FROM litequeue_job NOT INDEXED
    WHERE (scope, state, priority, created_at, job_id) > (?, ?, ?, ?, ?)
    ORDER BY scope, state, priority, created_at, job_id LIMIT ?
) GROUP BY scope, state, kind;

-- name: survey_ready
-- The first job of the next line, in the order in which they are leased; a line is a scope, a kind and a priority. It is
-- sought as in group_after.
SELECT job.scope, job.kind, job.priority, job.created_at, job.job_id, job.events
FROM litequeue_job AS job INDEXED BY litequeue_job_ready
WHERE job.state = 0 AND (job.scope, job.kind, job.priority) >= (?, ?, ? + 1)
ORDER BY job.scope, job.kind, job.priority, job.created_at, job.job_id LIMIT 1;

-- name: survey_done
-- The completed jobs of a scope and priority that were enqueued last.
SELECT kind, leased_at, finished_at, job_id, events FROM litequeue_job NOT INDEXED
WHERE scope = ? AND state = 2 AND priority = ? ORDER BY created_at DESC, job_id DESC LIMIT ?;

-- name: survey_lapsed
SELECT count(*) FROM (
    SELECT 1 FROM litequeue_job INDEXED BY litequeue_job_deadline WHERE state = 1 AND lease_deadline <= ? LIMIT ?
);

-- name: survey_running
-- Leased jobs, those that lapse first; without what is large of them.
SELECT job.job_id, job.scope, job.kind, job.worker_id, job.leased_at, job.lease_deadline, continuation.progress,
    continuation.note, holder.pid, holder.host
FROM litequeue_job AS job INDEXED BY litequeue_job_deadline
LEFT JOIN litequeue_holder AS holder ON holder.id = job.holder
LEFT JOIN litequeue_continuation AS continuation ON <own_continuation>
WHERE job.state = 1 ORDER BY job.lease_deadline LIMIT ?;

-- name: survey_dead
-- Dead jobs of a scope after a place, with their error; a kind filter is (exact, from, below).
SELECT job.priority, job.created_at, job.job_id, job.kind, job.finished_at, outcome.last_error
FROM litequeue_job AS job NOT INDEXED
LEFT JOIN litequeue_outcome AS outcome ON <own_outcome>
WHERE job.scope = ? AND job.state = 4 AND (job.priority, job.created_at, job.job_id) > (?, ?, ?)
    AND (?5 IS NULL OR job.kind = ?5 OR (job.kind >= ?6 AND job.kind < ?7))
ORDER BY job.priority, job.created_at, job.job_id LIMIT ?8;

-- name: flow_in
-- Of up to so many jobs of a group that were created within a time: how many there are, the first, and whether there are
-- later ones.
SELECT count(*), min(created_at), EXISTS (
    SELECT 1 FROM litequeue_job NOT INDEXED WHERE scope = ?1 AND state = ?2 AND priority = ?3 AND created_at > ?5
) FROM (
    SELECT created_at FROM litequeue_job NOT INDEXED
    WHERE scope = ?1 AND state = ?2 AND priority = ?3 AND created_at > ?4 AND created_at <= ?5
    ORDER BY created_at DESC LIMIT ?6
);

-- name: flow_out
-- Of so many finished jobs of a group, the youngest that were created before a time: how many, the first of them, how
-- many of them have ended within another time, when the first of those did, and whether some have ended later.
SELECT count(*), min(created_at), sum(is_late), min(CASE WHEN is_late THEN finished_at END), max(finished_at) > ?6 FROM (
    SELECT created_at, finished_at, finished_at > ?5 AND finished_at <= ?6 AS is_late FROM litequeue_job NOT INDEXED
    WHERE scope = ?1 AND state = ?2 AND priority = ?3 AND created_at < ?4 ORDER BY created_at DESC LIMIT ?7
);

-- name: flow_back
-- The same of jobs that wait out their back-off; when they failed, only their log tells.
SELECT created_at, job_id, events FROM litequeue_job NOT INDEXED
WHERE scope = ? AND state = ? AND priority = ? AND created_at < ? ORDER BY created_at DESC LIMIT ?;

-- ## Examination: every row by key, in pages, each page with what belongs to it in one snapshot

-- name: examined_jobs
SELECT job.scope, job.state, job.priority, job.created_at, job.job_id, job.kind, job.attempts, job.reaps,
    job.max_attempts, job.lease_generation, job.worker_id, job.holder, job.leased_at, job.lease_deadline, job.beats,
    job.checkpoints, job.last_beat_at, job.not_before, job.expires_at, job.finished_at, job.idempotency_key, job.events,
    body.job_id IS NOT NULL, body.payload, outcome.result, continuation.job_id IS NOT NULL, continuation.progress
FROM litequeue_job AS job NOT INDEXED
LEFT JOIN litequeue_body AS body ON <own_body>
LEFT JOIN litequeue_outcome AS outcome ON <own_outcome>
LEFT JOIN litequeue_continuation AS continuation ON <own_continuation>
WHERE (job.scope, job.state, job.priority, job.created_at, job.job_id) > (?, ?, ?, ?, ?)
ORDER BY job.scope, job.state, job.priority, job.created_at, job.job_id LIMIT ?;

-- part: jobs_of_body
SELECT count(*) FROM litequeue_job AS job NOT INDEXED
WHERE <job_of_body>

-- part: leases_of_body
SELECT count(*) FROM litequeue_job AS job NOT INDEXED
WHERE job.scope = body.scope AND job.state = 1 AND job.priority = body.priority
    AND job.created_at = body.created_at AND job.job_id = body.job_id

-- name: examined_bodies
-- The payload is not read: it lies at the end of its row.
SELECT body.job_id, (<jobs_of_body>) FROM litequeue_body AS body
WHERE body.job_id > ? ORDER BY body.job_id LIMIT ?;

-- name: examined_outcomes
SELECT outcome.job_id, body.job_id IS NOT NULL FROM litequeue_outcome AS outcome
LEFT JOIN litequeue_body AS body ON body.job_id = outcome.job_id
WHERE outcome.job_id > ? ORDER BY outcome.job_id LIMIT ?;

-- name: examined_continuations
SELECT continuation.job_id, (<leases_of_body>) FROM litequeue_continuation AS continuation
LEFT JOIN litequeue_body AS body ON body.job_id = continuation.job_id
WHERE continuation.job_id > ? ORDER BY continuation.job_id LIMIT ?;

-- name: examined_reruns
SELECT rerun.job_id, (<leases_of_body>) FROM litequeue_rerun AS rerun
LEFT JOIN litequeue_body AS body ON body.job_id = rerun.job_id
WHERE rerun.job_id > ? ORDER BY rerun.job_id LIMIT ?;

-- name: examined_slots
-- With the kind and scope of the job that it stands for, if that is leased.
SELECT slot.kind, slot.scope, slot.job_id, job.kind, job.scope
FROM litequeue_slot AS slot
LEFT JOIN litequeue_body AS body ON body.job_id = slot.job_id
LEFT JOIN litequeue_job AS job NOT INDEXED ON job.scope = body.scope AND job.state = 1
    AND job.priority = body.priority AND job.created_at = body.created_at AND job.job_id = body.job_id
WHERE (slot.kind, slot.scope, slot.job_id) > (?, ?, ?)
ORDER BY slot.kind, slot.scope, slot.job_id LIMIT ?;

-- name: slot_exists
SELECT 1 FROM litequeue_slot WHERE kind = ? AND scope = ? AND job_id = ?;

-- name: examined_outbox
-- With whether it waits, whether another of its key is before it, and whether there is a job by its id in its scope.
SELECT message.scope, message.key, message.position, message.job_id, message.payload IS NOT NULL,
    EXISTS (
        SELECT 1 FROM litequeue_outbox AS other NOT INDEXED
        WHERE other.scope = message.scope AND other.key = message.key AND other.position < message.position
    ),
    EXISTS (
        SELECT 1 FROM litequeue_body AS body WHERE body.job_id = message.job_id AND body.scope = message.scope
    )
FROM litequeue_outbox AS message NOT INDEXED
WHERE (message.scope, message.key, message.position) > (?, ?, ?)
ORDER BY message.scope, message.key, message.position LIMIT ?;

-- part: state_of
CROSS JOIN litequeue_job AS job NOT INDEXED ON <job_of_body>

-- name: examined_gates
-- With the state of its job, if that is there, and how many jobs it misses.
SELECT gate.id, gate.job_id, gate.parents, gate.missing, gate.completed + gate.dead + gate.cancelled,
    (SELECT job.state FROM litequeue_body AS body <state_of> WHERE body.job_id = gate.job_id),
    (SELECT count(*) FROM litequeue_dependency AS missed INDEXED BY litequeue_dependency_gate WHERE missed.gate = gate.id)
FROM litequeue_gate AS gate
WHERE gate.id > ? ORDER BY gate.id LIMIT ?;

-- name: examined_dependencies
-- With the gate's job and count, the state of the job that it misses, and whether a notice tells the gate of its end, or
-- forgets what the gate misses.
SELECT missed.parent_id, missed.gate, gate.job_id, gate.missing,
    (SELECT job.state FROM litequeue_body AS body <state_of> WHERE body.job_id = missed.parent_id),
    EXISTS (
        SELECT 1 FROM litequeue_notice AS notice
        WHERE notice.parent_id = missed.parent_id AND notice.gate >= missed.gate
    ),
    EXISTS (SELECT 1 FROM litequeue_notice AS notice WHERE notice.parent_id IS NULL AND notice.gate = missed.gate)
FROM litequeue_dependency AS missed NOT INDEXED
LEFT JOIN litequeue_gate AS gate ON gate.id = missed.gate
WHERE (missed.parent_id, missed.gate) > (?, ?) ORDER BY missed.parent_id, missed.gate LIMIT ?;

-- name: examined_schedules
SELECT <schedule> FROM litequeue_schedule WHERE name > ? ORDER BY name LIMIT ?;

-- name: body_count
SELECT count(*) FROM litequeue_body;

-- name: hosts
SELECT boot_id, lease_offset FROM litequeue_host LIMIT 2;

-- name: others
-- Tables of the application that the queue lives beside.
SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'litequeue\_%' ESCAPE '\'
    AND name NOT LIKE 'sqlite\_%' ESCAPE '\';

-- name: orphaned_outcomes_remove
-- Only while every job has its body, so that what has no body has no job.
DELETE FROM litequeue_outcome
WHERE NOT EXISTS (SELECT 1 FROM litequeue_body AS body WHERE body.job_id = litequeue_outcome.job_id);

-- name: orphaned_continuations_remove
DELETE FROM litequeue_continuation
WHERE job_id IN (
    SELECT continuation.job_id FROM litequeue_continuation AS continuation
    LEFT JOIN litequeue_body AS body ON body.job_id = continuation.job_id
    WHERE (<leases_of_body>) = 0
);

-- name: gates_count_anew
-- A gate that counts fewer than it misses lets its job go too early.
UPDATE litequeue_gate SET missing = (
    SELECT count(*) FROM litequeue_dependency AS missed INDEXED BY litequeue_dependency_gate
    WHERE missed.gate = litequeue_gate.id
)
WHERE missing > 0 AND missing < (
    SELECT count(*) FROM litequeue_dependency AS missed INDEXED BY litequeue_dependency_gate
    WHERE missed.gate = litequeue_gate.id
);

-- name: untold
-- The notice of every job that has ended, is missed, and of which none tells.
SELECT max(missed.gate), missed.parent_id, job.state
FROM litequeue_dependency AS missed NOT INDEXED
CROSS JOIN litequeue_body AS body ON body.job_id = missed.parent_id
<state_of>
WHERE job.state IN (2, 4, 6) AND NOT EXISTS (
    SELECT 1 FROM litequeue_notice AS notice
    WHERE notice.parent_id = missed.parent_id AND notice.gate >= missed.gate
)
GROUP BY missed.parent_id, job.state;

-- name: orphaned_dependencies_remove
DELETE FROM litequeue_dependency
WHERE gate NOT IN (SELECT id FROM litequeue_gate WHERE missing > 0)
    AND gate NOT IN (SELECT gate FROM litequeue_notice WHERE parent_id IS NULL);
