"""The log: one directory of files that holds every fact, and the specification of their bytes.

Everything is little-endian and packed (no alignment). CRC means CRC-32C (Castagnoli, as in iSCSI). Times are Unix
microseconds, sequences number the facts of a log from 1 without gaps; only in a log that was salvaged some are missing,
and each time a record of kind 12 stands behind them, which names them and has the last of them as its own sequence.
Nothing in this room knows asyncio.

The directory::

    {base:020d}.log     a segment; base is the sequence of its first record
    {base:020d}.idx     its sidecar: built from the segment, rebuilt when missing, never trusted over it (``sidecar``)
    next.tmp            the next segment, made ahead of need; anything named *.tmp is deleted at the start
    watermark           up to where the log is known to be on the disk (``watermark``)
    checkpoint          state of the scheduler, to start from (``checkpoint``); checkpoint.before is the one before it
    archived            which segments were archived, by the broker or by the pipeline (``retention``)
    *.dropped           what retention took out of the log, until it is unlinked
    generation          of a node of a cluster: which stream it has followed (``syncbrok.cluster.generation``)
    lock                held (flock) while a broker has the log open; contains its process id
    reserve             room for outcomes while the disk is full; released then, made again later
    *.broken            a torn tail as it was before it was cut: {base:020d}.log.{offset}.broken

Segment
=======

A header of 128 bytes, then records without a gap. Zeros may follow the last record only in the last segment, which
was given its room in advance; a sealed segment ends with its ``SegmentSealed`` record and not one byte later. ::

    offset  bytes
         0      8   "SYNCBROK"
         8      2   version of the format: 1
        10      2   length of this header: 128
        12      4   zero
        16      8   name of the checksum: "crc32c" and zeros
        24     16   uuid of the log
        40     16   id key: the key of the tags in message ids (``model.names``)
        56      8   base: sequence of the first record
        64      8   created: time
        72     52   zero
       124      4   CRC of the 124 bytes before

The first record of every segment is ``SegmentOpened``, a snapshot of queues and subscribers, so that each segment can
be read alone. Segments follow each other without a gap of sequences, all with the same uuid and id key.

Record
======

A header of 92 bytes, then the body: first the meta, then the content. ::

    offset  bytes   name
         0      4   magic           "SYBR"
         4      1   version         of the record: 1, or 2 (see below)
         5      1   kind            see below
         6      2   flags           see below
         8      4   body_bytes      meta and content together
        12      4   meta_bytes      so the content begins at 92 + meta_bytes
        16      8   sequence        of this record
        24      8   batch           number of the write it was part of; never smaller than the record's before
        32      8   synced_through  last sequence known to be on the disk when the batch was written
        40      8   time_us
        48     16   id              of the message, else zero
        64      8   root            sequence of the root of the message's tree, else 0
        72      4   queue           number, else 0
        76      4   depth           of the message in its tree, else 0
        80      4   items           parents of a message, rows of outcomes, entries of a replay, else 0
        84      4   body_crc        CRC of the body
        88      4   header_crc      CRC of the 88 bytes before

Kinds: 1 message, 2 outcomes, 3 carried message, 4 queue set, 5 queue deleted, 6 subscriber set, 7 subscriber deleted,
8 file applied, 9 rearmed (replay), 10 segment opened, 11 segment sealed, 12 gap, 13 erased, 14 job, 16 managed (who
cancelled or purged). ``queue`` is filled in kinds 1, 3, 4, 5, 6, 14 and 16.

Flags, bit by bit: 0 the record is the last of a client's unit; 1 key, 2 idempotency key, 3 due time, 4 expiry, 5
headers, 6 only one subscriber: the message has one; 8 scope (1: same); 9 and 10 ``parent_failure`` (0 fail, 1 hold, 2
deliver), 11 erased: the record was rewritten (below), 12 the message has a time after which it is erased. All other
bits are zero. Every batch ends with the last record of a unit.

What has come since is a field with a default, or a kind of its own, as long as a program that does not know it does not
misread the record. One that would be misread gets version 2: who knows only version 1 refuses the log, in words, and
cuts nothing off: the watermark moves over the first of them in a segment at once, since above it the first versions
took such a record for a torn tail. Those are: a subscriber that does not count (and the first record of a segment that
names one), a message with flag 12, rows that end what retention took from such a one, replays with keys, what says that
messages are erased, jobs, who cancelled or purged, and rewritten records. The header keeps its layout in every version.

**Message** (1). Meta: the parents' ids (16 bytes each, ``items`` of them); where one of the flags 1 to 6 or 12 is set,
the extras; then, up to the end of the meta, the content type (UTF-8). Content: the content. Extras::

         0      8   due_us, 0 for none
         8      8   expires_us, 0 for none
        16      4   only: number of the one subscriber, 0 for all
        20      4   length of the headers
        24      2   length of the key
        26      2   length of the idempotency key
        28      2   length of the fingerprint
        30      -   fingerprint, key (UTF-8), idempotency key (UTF-8), headers (JSON: [[name, value], ...])
         -      8   erase_after_us, where flag 12 is set: the record is of version 2

**Carried message** (3). ``sequence`` and ``time_us`` of the header are those of this record; ``id``, ``root``,
``queue``, ``depth`` and flags are the message's. Meta as of a message, with this between extras and content type::

         0      8   the message's own sequence
         8      8   the message's own time_us
        16      4   number of deliveries that have ended
        20      4   number of deliveries that have been tried and not ended
        24      -   ended: subscriber (4 bytes), outcome (1); subscriber 0: one that has been deleted, at whom it died
         -      -   tried: subscriber (4), attempts (4), due_us (8)

**Outcomes** (2). Meta: ``items`` rows of 48 bytes. Content: the details of all rows, one after the other. A row::

         0      8   sequence of the message
         8      8   time_us: when the attempt began, or the delivery was ended
        16      8   due_us of the next attempt, 0 for none
        24      8   after: the last durable sequence when the attempt began
        32      4   subscriber, 0xFFFFFFFF for all that had not ended
        36      4   latency_us
        40      2   attempt, 0 for an end without an attempt
        42      2   status
        44      2   length of the detail
        46      1   outcome (``model.facts.Outcome``)
        47      1   reason (``model.facts.Reason``)

**Segment sealed** (11). Meta: records before this one in the segment (8 bytes), CRC of all their bytes, from offset 128
of the file to this record (4 bytes).

**All others**: JSON, in ``log.format.declaration_bodies``; a field that is not there has a default. That of
``SegmentOpened`` has ``sealed_us``, the wall clock when the segment before was sealed; ``time_us`` of a record is never
smaller than the record's before, and may be ahead of the clock. Where there was no room for the segment behind the seal
(a full disk, or a crash there), it is opened later; its first record takes the seal's ``time_us`` then. And it has
``rules``, by which the records of the segment were made, for whoever judges them: 1 where it does not say
(``model.facts.RULES``). A row of reason ``RETENTION`` stands for all that its subscriber had not taken up to its
message. ``lost``, where there are any, names dead letters whose content was lost and whose messages' records are gone:
message and subscriber of each.

Rewritten records
=================

A sealed segment changes in one way alone: a message that was erased (kind 13 says which, by their ids) is taken out of
it (``format.erasure``). The file is written anew and takes the name; each record has the offset, the length, the
sequence and the batch that it had, and rewritten ones version 2, bit 11 and new checksums; the seal's checksum is new.

In a message, carried or not, zeros stand for the content, in which there may be more of them than before: headers are
left out, and key and idempotency key are 22 characters each, base64url without padding of BLAKE2b (16 bytes, keyed with
the log's id key) of the key in UTF-8; where there is no room for both the key is left out, then the idempotency key.
``meta_bytes`` and the flags of the extras say what is there. In outcomes zeros stand for the details of rows of erased
messages, and are read as none.

Watermark
=========

Two slots of 512 bytes at 0 and 4096, written in turns; the valid one with the greater ``turn`` counts. ::

         0      8   "SYBRMARK"
         8      8   turn
        16     16   uuid of the log
        32      8   durable: the last sequence known to be on the disk
        40      8   base of the segment that the next record goes to
        48      8   offset in it of that record
        56      8   time_us
        64      8   oldest: base of the first segment that retention has left
        72      1   1 if the log was closed in good order, with nothing after ``offset``
        73      -   zero, up to
       508      4   CRC of the 508 bytes before

What recovery makes of damage
=============================

A record that cannot be read is a **torn tail** only if it is in the last segment, the segment is not sealed, its
sequence is above the watermark, and no later valid record has a ``synced_through`` that covers it (the table stands in
``recovery_table``). Then, and for the records of a unit whose last record is missing, the tail is saved as ``.broken``
and cut. A whole record of another version is never torn. In a sealed segment that another one follows, a record that
cannot be read costs itself: see ``damage``, and RULES 28 for what a start makes of it. Everything else is corruption:
the broker refuses to start and names file, offset and sequences.

The limit of this: damage done to the last batches after they were written, before the watermark moved over them (it
does so about once a second and whenever the log is closed), cannot be told from a write that was cut short.
"""
