"""The bounds that clients, operators or several modules meet, in one place, with the relations between them asserted.
Sizes of one module's own buffers and caches, and what one format allows, stand in that module.

Sizes are in bytes, times in the unit of the suffix. Bounds that a deployment may change are defaults here and keys in
``config/broker.yml``; the code is built for the others.
"""

KIB = 1024
MIB = 1024 * KIB

# -- what a client may send (INTERFACES section 5) -------------------------------------------------------------------
content_bytes_max = 1 * MIB
batch_lines_max = 10_000
batch_bytes_max = 16 * MIB
json_bytes_max = 512 * KIB
"""of the settings of a queue or subscriber, and of what a replay or purge is asked for: a selection of messages"""
parents_max = 64
queue_name_chars_max = 128
queue_name_bytes_max = 4 * queue_name_chars_max
"""of UTF-8"""
subscriber_name_chars_max = 128
tokens_max = 1_000
"""created by the API"""
token_patterns_max = 64
"""of a scope"""
key_bytes_max = 512
header_bytes_max = 16 * KIB
endpoint_chars_max = 2_048
forwarded_headers_max = 16
"""that a subscriber asks for though they say who somebody is"""
signatures_max = 4
"""schemes that a subscriber's deliveries are signed by; each costs every one of them its time"""
pem_bytes_max = 64 * KIB
"""of a certificate with those it hangs on, of a key, of the authorities that a subscriber has"""
access_token_bytes_max = 8 * KIB
"""of a bearer token, which goes out as a header: many receivers take no longer one"""
secret_grace_default_s = 86_400.0
secret_grace_max_s = 7 * 86_400.0
"""how long a secret that is rotated out may sign beside the new one"""
request_headers_timeout_s = 10.0
request_body_timeout_s = 30.0
wait_s_max = 60.0
list_limit_default = 100
list_limit_max = 1_000
segments_sent_max = 4
"""of the log, at a time, by a node of a cluster to other nodes, which fetch whole ones"""
segments_read_max = 16
"""pieces of the log, at a time, to those who read it over the network"""
page_bytes_max = 4 * MIB
"""about, of one page of messages as it is shown: one message more at most"""
tree_nodes_max = 10_000
tree_edges_max = 100_000
"""parents named in one tree, about: it ends with the messages that were read together with the last of them"""
metrics_named_max = 200
"""subscribers that the metrics show by name: those with the largest backlog"""
metrics_named_s = 3_600.0
"""for so long one of these is shown after it was last among them; twice as many at most"""
config_file_bytes_max = 1 * MIB

# -- consumers that pull ---------------------------------------------------------------------------------------------
pull_messages_max = 1_000
lease_min_s = 1.0
lease_max_s = 12 * 3_600.0

pull_bytes_max = 4 * MIB
"""of one answer to a pull: one message more at most"""
ref_bytes_max = 1 * KIB
"""of what a WebSocket wants back with an answer"""
stream_unsent_bytes_max = 32 * KIB
"""of answers on a WebSocket; then nothing more is read from it"""
tail_bytes_max = 1 * MIB
"""of messages read together for one who reads a queue along"""
tails_reading_max = 4
"""who read a queue along and hold what was read, and is not counted as theirs yet, at once"""

# -- TCP frontends (INTERFACES section 4) ------------------------------------------------------------------------------
tcp_connections_max = 1_024
frame_timeout_s = 30.0
tcp_unsettled_bytes_max = 4 * MIB

# -- how much may wait inside the broker ------------------------------------------------------------------------------
channel_items_max = 50_000
channel_bytes_max = 64 * MIB
declarations_waiting_max = 10_000
"""in the channel of queues, and in that of subscribers: a bootstrap file may hand in many at once"""
commit_bytes_max = 32 * MIB
commit_bytes_wanted = 3 * MIB
"""a commit that has so many takes no more units. The block it is encoded into then stays in the heap and is used again
(``cli/serve/heap.py``); a larger one comes fresh from the system each time, which cost more than writing it"""
commit_records_max = 20_000
outcomes_waiting_max = 100_000

# -- budgets that many owners share; attempts and content in flight stand with delivery --------------------------------
descriptors_min = 128
descriptors_max = 65_536
"""as many as are used where the system grants more: each connection takes memory besides"""
descriptors_reserved = 64
"""for the log (the active segment and its spare, watermark, reserve, lock, checkpoints, four readers and maintenance),
the event loop, standard streams and every listener"""
indexes_kept_max = 512
"""indexes of sealed segments kept open; those from sidecars are mapped files, so they take little memory"""
http_connections_max = 4_096
http_connections_per_address_max = 1_024
receiving_bytes_max = 96 * MIB
"""of requests that are not whole yet; a single owner gets 42 MiB of it"""
sending_bytes_max = 32 * MIB
"""of answers and streams that were not read yet; a single owner gets 14 MiB of it"""
unsent_bytes_max = 128 * KIB
"""of each connection, that the system holds beside what is on its way; left to itself it takes some MiB of each, and
at a millisecond or more for each MiB. The rest stays with the broker, which counts it"""
uncounted_bytes = 16 * KIB
"""of each connection, in either direction: counting less would cost every request more than it saves"""
admission_timeout_s = 5.0
"""how long a body waits for room before it is refused"""
write_timeout_s = 30.0
"""while bytes wait to be written and nothing moves, a connection stays so long"""
refused_max = 64
"""connections that are refused in words at once; more are closed without"""

# -- delivery ---------------------------------------------------------------------------------------------------------
window_default = 64
window_max = 10_000
history_ahead_max = 2_048
uncounted_per_queue_max = 1_000
"""subscribers of a queue that do not count and that nobody has declared"""
idle_after_default_s = 5 * 24 * 3_600.0
"""a group from which nobody has taken anything for so long, while there was something, stops counting"""
uncounted_ahead_max = 1 << 16
"""messages that a subscriber that does not count is told of as they come, and has not taken; one that has more is told
the rest from the log, when it has few again"""
attempts_in_flight_max = 20_000
bytes_in_flight_max = 64 * MIB
"""content of attempts that are out and of leases that are not written yet; a single subscriber gets 28 MiB of it"""
content_uncharged_bytes = 2 * KIB
"""smaller contents are paid with their attempt: counting each would cost the hot path more than it saves"""
replay_messages_max = 1_000_000
"""of one replay; who asks for more is told to narrow it"""
replay_children_max = 1_000_000
"""children of one message that a replay looks at"""
jobs_unfinished_max = 100
jobs_kept_max = 1_000
"""jobs that are over and still listed"""
jobs_kept_s = 7 * 86_400.0
replay_ids_max = 10_000
"""messages of a selection"""
erased_of_key_max = 10_000
"""messages of one key that are erased together: the facts of a job name them all"""
job_ahead_messages_max = 10_000
"""messages that a job has sent again and that have not ended: it plans no more until some have"""
operations_max = 64
"""commands that take more than one batch, replays among them, at work at once"""
leases_max = 50_000
"""messages lent to those who come for them; a single group gets ``window_max``"""
retrying_per_subscriber_max = 10_000
cascade_slice = 4_096
ends_slice = 4_096
"""deliveries that are ended in one piece by rows that each end a message at all subscribers of its queue"""
key_places_max = 4_096
"""subscribers for whom it is kept how far a chain of one key has ended; for more it is worked out now and then"""
response_bytes_max = 16 * KIB
response_bytes_kept = 1 * KIB
delivered_batch_max = 1_000
"""messages in one request to a subscriber with ``batch``"""
delivered_batch_default = 100
delivered_batch_bytes_max = 4 * MIB
"""content of the messages in one such request, unless it has one message"""
delivered_batch_wait_max_s = 5.0
delivered_batch_wait_default_s = 0.2
rate_max = 1_000_000
"""attempts in the unit of a subscriber's ``rate``"""
filter_bytes_max = 1 * KIB
filter_data_bytes_max = 64 * KIB
"""larger contents are no ``data`` for a filter"""
filter_work_us_max = 10_000
"""of filters in one turn of the loop, by an estimate; what comes behind waits for the next"""
filter_trial_messages_max = 1_000
timeout_default_s = 15.0
timeout_max_s = 300.0
retry_steps_max = 64
look_ups_max = 1_024
"""names being asked for at once; a slow one holds its place until the name servers are given up"""
look_up_timeout_s = 15.0
"""without an answer of the name servers; where the system is asked, its own options say it"""
look_up_threads_max = 64
"""the same where the system is asked, which takes a thread for each"""
names_kept_max = 10_000
addresses_good_max_s = 3_600.0
"""how long the last good addresses of a name are used while no name server answers"""
hops_max = 8
"""brokers that a message may have been delivered by before; a publish that says more is a loop"""
retry_delay_max_s = 30 * 86_400.0
retry_delays_default_s = (5.0, 300.0, 1_800.0, 7_200.0, 18_000.0, 36_000.0, 50_400.0, 72_000.0, 86_400.0)
retry_jitter = 0.2
retry_after_max_s = 86_400.0
connection_age_max_s = 300.0
breaker_failures_max = 1_000
breaker_of_max = 1_000
"""answers that a breaker remembers, a bit each"""
breaker_probe_min_s = 0.1
breaker_probe_max_s = 3_600.0
breakers_turned_max = 1_024
"""breakers that have opened or closed and of which nobody has been told"""
disabled_max_s = 5 * 86_400.0
event_types_max = 32
"""that a subscriber of the broker's own events names"""
disable_after_default_s = 5 * 86_400.0
disable_after_max_s = 365 * 86_400.0
delay_max_s = 365 * 86_400.0
drain_timeout_s = 25.0
scrape_awaited_max_s = 30.0
"""so long a broker whose log has failed waits for one more scrape of its metrics, at most"""

# -- watching ---------------------------------------------------------------------------------------------------------
waiters_max = 10_000
listeners_max = 64
listener_events_max = 20_000
events_missed_max = 10_000
event_gap_sequences_max = 200_000
search_s = 0.2
"""so long a page of a search looks through the log, then it says where to go on"""
search_text_bytes_max = 1_024
history_minutes_max = 1_440
history_queues_max = 100
"""by name in a minute of the history"""
scanned_per_page_max = 20_000
heads_kept_max = 16_384

# -- the log ----------------------------------------------------------------------------------------------------------
segment_bytes_default = 64 * MIB
segment_bytes_min = 64 * KIB
segment_bytes_max = 1024 * MIB
reserve_bytes = 4 * MIB
retention_default_s = 7 * 86_400.0
keep_min_s = 1.0
"""the least that ``retention`` and ``erase_after`` of a queue may be"""
keep_max_s = 3_650 * 86_400.0
erase_within_default_s = 86_400.0
"""after so long what was erased is off the disk"""
log_readers_max = 64
"""named readers of the log"""
reader_hold_default_s = 3 * 86_400.0
"""so long after a reader was heard of retention keeps what it has not read, where it asked for that"""
idempotency_window_default_s = 86_400.0
idempotency_window_max_s = 30 * 86_400.0
backlog_messages_max = 1_000_000_000
backlog_bytes_max = 1024 * 1024 * 1024 * MIB
backlog_retry_after_s = 5
"""after so long who was refused since a queue is full may ask again"""
idempotency_keys_max = 8_000_000
"""remembered in memory; older ones are looked up in the log"""
offsets_every = 256
"""records for each of the sparse offsets of a segment: a block that is read together"""
checksums_every = 5_120
"""records for each checksum of a segment's sidecar: what a reader of all of it verifies and decodes together"""
sidecar_verified_every_s = 60.0
"""an index that is the pages of a file is verified again after so long, when it is asked"""
watermark_every_s = 1.0
clock_step_s = 1.5
"""by so much the wall clock must differ from the monotonic one, from one second to the next, to count as set"""
unlink_grace_s = 60.0

assert json_bytes_max <= content_bytes_max
assert replay_ids_max * len(', "01a227d0-0000-8000-8000-000000000000"') < json_bytes_max
assert content_bytes_max < batch_bytes_max <= commit_bytes_max <= channel_bytes_max
assert content_bytes_max < commit_bytes_wanted < commit_bytes_max < receiving_bytes_max
assert descriptors_reserved < descriptors_min - descriptors_min // 8
assert tcp_unsettled_bytes_max < channel_bytes_max
assert batch_lines_max <= commit_records_max <= channel_items_max
assert pull_messages_max <= window_max
assert window_default <= window_max <= attempts_in_flight_max
assert window_max <= retrying_per_subscriber_max
assert response_bytes_kept <= response_bytes_max
assert segment_bytes_min <= segment_bytes_default <= segment_bytes_max
assert content_bytes_max <= bytes_in_flight_max // 8 // 4, "an item is well below a budget's reserve"
assert delivered_batch_bytes_max <= bytes_in_flight_max // 8, "a batch is gathered though others hold what they may"
assert delivered_batch_default <= delivered_batch_max <= attempts_in_flight_max // 8
assert delivered_batch_wait_default_s <= delivered_batch_wait_max_s < timeout_default_s
assert attempts_in_flight_max * content_uncharged_bytes <= bytes_in_flight_max
assert window_max <= leases_max // 4
assert list_limit_default <= list_limit_max <= tree_nodes_max
assert len(retry_delays_default_s) <= retry_steps_max
assert timeout_default_s <= drain_timeout_s <= timeout_max_s
assert idempotency_keys_max > batch_lines_max
assert idempotency_window_default_s <= idempotency_window_max_s
assert events_missed_max <= listener_events_max
assert list_limit_max <= scanned_per_page_max
