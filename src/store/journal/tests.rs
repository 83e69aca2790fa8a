//! What the journal promises, over a disk that can stop, fail and tear.

use std::io;
use std::sync::{Arc, Mutex};

use super::frame::{
    ALIGNMENT, FRAME_HEADER_BYTES, SEGMENT_HEADER_BYTES, find_frame, put_segment_header,
};
use super::recovery::{Recovered, read_shaped};
use super::writer::Shape;
use super::*;
use crate::store::backend::Backend;

const STORE: [u8; 16] = *b"one of the store";
const EPOCHS: [u128; 2] = [0xA0, 0xA1];
const SEGMENT: usize = 1024;
const NONE: [u64; 0] = [];
const SHAPE: Shape = Shape {
    segment: SEGMENT as u64,
    step: 256,
};

/// A file whose writes are durable after a sync, and whose calls fail on demand.
#[derive(Clone, Debug, Default)]
struct Disk(Arc<Mutex<State>>);

/// Durable bytes, and writes that are not durable.
type Unsynced = (Vec<u8>, Vec<(usize, Vec<u8>)>);

#[derive(Debug, Default)]
struct State {
    now: Vec<u8>,
    durable: Vec<u8>,
    /// Writes since the last sync.
    pending: Vec<(usize, Vec<u8>)>,
    /// What was durable before the last sync, and the writes that it made durable.
    before_sync: Unsynced,
    writes: usize,
    syncs: usize,
    /// Writes and syncs that still succeed, and how many fail then.
    fail_after: Option<(usize, usize)>,
}

impl State {
    fn step(&mut self) -> io::Result<()> {
        match &mut self.fail_after {
            Some((0, 0)) | None => Ok(()),
            Some((0, failures)) => {
                *failures -= 1;
                Err(io::Error::other("the disk fails"))
            }
            Some((left, _)) => {
                *left -= 1;
                Ok(())
            }
        }
    }
}

fn put(bytes: &mut Vec<u8>, offset: usize, data: &[u8]) {
    bytes.resize(bytes.len().max(offset + data.len()), 0);
    bytes[offset..offset + data.len()].copy_from_slice(data);
}

impl Backend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().now.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.0.lock().unwrap();
        let offset = usize::try_from(offset).unwrap();
        match state.now.get(offset..offset + out.len()) {
            Some(bytes) => {
                out.copy_from_slice(bytes);
                Ok(())
            }
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        let len = usize::try_from(len).unwrap();
        state.now.resize(len, 0);
        state.durable.resize(len, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        state.step()?;
        state.syncs += 1;
        let pending = std::mem::take(&mut state.pending);
        let durable = std::mem::take(&mut state.durable);
        state.before_sync = (durable, pending);
        state.durable = state.now.clone();
        Ok(())
    }

    /// A write that fails has written its first half.
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        let offset = usize::try_from(offset).unwrap();
        let outcome = state.step();
        let done = if outcome.is_ok() {
            data
        } else {
            &data[..data.len() / 2]
        };
        put(&mut state.now, offset, done);
        state.pending.push((offset, done.to_vec()));
        state.writes += 1;
        outcome
    }
}

impl Disk {
    fn holding(bytes: Vec<u8>) -> Self {
        let disk = Self::default();
        disk.0.lock().unwrap().now = bytes;
        disk
    }

    fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().now.clone()
    }

    fn durable(&self) -> Vec<u8> {
        self.0.lock().unwrap().durable.clone()
    }

    fn before_sync(&self) -> Unsynced {
        self.0.lock().unwrap().before_sync.clone()
    }

    /// What is durable, and the writes that are not.
    fn unsynced(&self) -> Unsynced {
        let state = self.0.lock().unwrap();
        (state.durable.clone(), state.pending.clone())
    }

    fn counts(&self) -> (usize, usize) {
        let state = self.0.lock().unwrap();
        (state.writes, state.syncs)
    }

    fn fail(&self, after: usize, failures: usize) {
        self.0.lock().unwrap().fail_after = Some((after, failures));
    }
}

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut n = self.0;
        n = (n ^ (n >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        n = (n ^ (n >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        n ^ (n >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }
}

fn begin(disk: &Disk, first: u64, eventual: bool) -> Writer {
    Writer::begin_shaped(
        SHAPE,
        Box::new(disk.clone()),
        STORE,
        EPOCHS,
        first,
        eventual,
    )
    .unwrap()
}

fn content(sequence: u64, len: usize) -> Vec<u8> {
    (0..len)
        .map(|n| {
            sequence
                .wrapping_mul(31)
                .wrapping_add(n as u64)
                .to_le_bytes()[0]
                | 1
        })
        .collect()
}

type Group = Vec<(u64, Payload)>;

fn group(first: u64, lens: &[usize]) -> Group {
    (first..)
        .zip(lens)
        .map(|(sequence, len)| (sequence, Payload::new(content(sequence, *len))))
        .collect()
}

fn as_frames(group: &Group) -> Vec<Frame<'_>> {
    group
        .iter()
        .map(|(sequence, payload)| Frame {
            sequence: *sequence,
            payload,
        })
        .collect()
}

fn size(group: &Group) -> u64 {
    group
        .iter()
        .map(|(_, payload)| frame_bytes(payload.len()))
        .sum()
}

fn recover(
    bytes: Vec<u8>,
    ledger: &Ledger,
    recorded: u64,
) -> Result<Vec<Recovered>, RecoveryError> {
    read_shaped(
        SHAPE.segment,
        &Disk::holding(bytes),
        STORE,
        ledger,
        recorded,
    )
}

fn sequences(found: &Result<Vec<Recovered>, RecoveryError>) -> Vec<u64> {
    match found {
        Ok(found) => found.iter().map(|frame| frame.sequence).collect(),
        Err(error) => panic!("not recovered: {error}"),
    }
}

fn damage(found: Result<Vec<Recovered>, RecoveryError>) -> (u8, u64, &'static str) {
    match found {
        Err(RecoveryError::Damaged {
            segment,
            offset,
            what,
        }) => (segment, offset, what),
        other => panic!("not taken for damage: {other:?}"),
    }
}

/// Offset of the frame of `sequence` in the file.
fn place(bytes: &[u8], ledger: &Ledger, sequence: u64) -> usize {
    for (index, epoch) in ledger.epochs.into_iter().enumerate() {
        let segment = &bytes[index * SEGMENT..(index + 1) * SEGMENT];
        for at in (SEGMENT_HEADER_BYTES..SEGMENT).step_by(ALIGNMENT) {
            if find_frame(segment, at, epoch).is_some_and(|frame| frame.sequence == sequence) {
                return index * SEGMENT + at;
            }
        }
    }
    panic!("no frame has sequence {sequence}");
}

/// Fills the active segment with groups of one frame of 64 payload bytes, up to where the next needs the other one.
fn fill(writer: &mut Writer, mut next: u64) -> u64 {
    while writer.fits(frame_bytes(64)) == Fit::Here {
        writer.append(&as_frames(&group(next, &[64]))).unwrap();
        next += 1;
    }
    next
}

#[test]
fn a_group_is_one_write_and_one_sync_and_is_found_again() {
    let disk = Disk::default();
    let mut writer = begin(&disk, 7, false);
    let before = disk.counts();
    writer.append(&as_frames(&group(7, &[3, 100, 8]))).unwrap();
    let after = (before.0 + 1, before.1 + 1);
    assert_eq!(disk.counts(), after);
    writer.append(&[]).unwrap();
    assert_eq!(disk.counts(), after);
    writer.append(&as_frames(&group(10, &[1]))).unwrap();

    let found = recover(disk.durable(), &writer.ledger(), 6).unwrap();
    let expected: Vec<_> = [(7, 3), (8, 100), (9, 8), (10, 1)]
        .into_iter()
        .map(|(sequence, len)| Recovered {
            sequence,
            payload: content(sequence, len),
        })
        .collect();
    assert_eq!(found, expected);
    assert_eq!(
        sequences(&recover(disk.durable(), &writer.ledger(), 8)),
        [9, 10]
    );
    assert_eq!(
        sequences(&recover(disk.durable(), &writer.ledger(), 10)),
        NONE
    );
}

#[test]
fn the_full_size_holds_the_largest_group_and_no_larger_one() {
    let disk = Disk::default();
    let mut writer = Writer::begin(Box::new(disk.clone()), STORE, EPOCHS, 1, false).unwrap();
    assert_eq!(writer.fits(MAX_GROUP_BYTES), Fit::Here);
    assert_eq!(writer.fits(MAX_GROUP_BYTES + 1), Fit::Full);
    let len = usize::try_from(MAX_GROUP_BYTES).unwrap() - FRAME_HEADER_BYTES;
    writer.append(&as_frames(&group(1, &[len]))).unwrap();
    writer.append(&as_frames(&group(2, &[len]))).unwrap();
    assert_eq!(writer.fits(frame_bytes(0)), Fit::Full);
    assert_eq!(disk.bytes().len() as u64, 2 * super::frame::SEGMENT_BYTES);
    let found = read(&disk, STORE, &writer.ledger(), 0).unwrap();
    assert_eq!(found.len(), 2);
    assert!(
        found
            .iter()
            .all(|frame| frame.payload == content(frame.sequence, len))
    );
}

#[test]
fn the_first_pass_over_a_segment_writes_its_bytes_ahead_and_later_ones_do_not() {
    let disk = Disk::default();
    let mut writer = begin(&disk, 1, false);
    let mut written = SEGMENT_HEADER_BYTES;
    let mut next = 1;
    for pass in 0..4 {
        let mut end = SEGMENT_HEADER_BYTES;
        loop {
            let frames = group(next, &[8]);
            let bytes = size(&frames);
            if end + usize::try_from(bytes).unwrap() > SEGMENT {
                break;
            }
            writer.append(&as_frames(&frames)).unwrap();
            let (_, pending) = disk.before_sync();
            let [(offset, data)] = &pending[..] else {
                panic!("a group was {} writes", pending.len());
            };
            end += usize::try_from(bytes).unwrap();
            let reached = offset % SEGMENT + data.len();
            if pass < 2 {
                if reached > end {
                    assert!(written < end, "zeros were written before they were needed");
                    assert_eq!(reached, end.next_multiple_of(256));
                    assert!(
                        data[data.len() - (reached - end)..]
                            .iter()
                            .all(|byte| *byte == 0)
                    );
                }
                written = written.max(reached);
                assert!(written >= end);
            } else {
                assert_eq!(reached, end);
            }
            next += 1;
        }
        if pass < 2 {
            assert!(written >= end);
        }
        written = SEGMENT_HEADER_BYTES;
        let ledger = writer.checkpoint(next - 1, 0xB0 + pass);
        writer.covered(&ledger);
    }
}

#[test]
fn a_journal_begun_anew_finds_nothing_of_the_one_before() {
    let disk = Disk::default();
    let mut writer = begin(&disk, 1, false);
    let next = fill(&mut writer, 1);
    writer.append(&as_frames(&group(next, &[64]))).unwrap();
    let old = writer.ledger();
    let writer = Writer::begin_shaped(
        SHAPE,
        Box::new(disk.clone()),
        STORE,
        [0xC0, 0xC1],
        next + 1,
        false,
    )
    .unwrap();
    assert_eq!(
        sequences(&recover(disk.durable(), &writer.ledger(), next)),
        NONE
    );
    assert_eq!(damage(recover(disk.durable(), &old, 0)).0, 1);
    // The same epochs with nothing but the old frames behind the new header.
    let same = begin(&disk, next + 1, false);
    assert_eq!(
        sequences(&recover(disk.durable(), &same.ledger(), next)),
        NONE
    );
}

#[test]
fn a_group_goes_here_or_next_or_waits_for_a_checkpoint() {
    let disk = Disk::default();
    let mut writer = begin(&disk, 1, false);
    let middle = fill(&mut writer, 1);
    assert_eq!(writer.fits(frame_bytes(64)), Fit::Next);
    assert_eq!(writer.ledger().active, 0);
    writer.append(&as_frames(&group(middle, &[64]))).unwrap();
    assert_eq!(writer.ledger().active, 1);
    let next = fill(&mut writer, middle + 1);
    assert_eq!(writer.fits(frame_bytes(64)), Fit::Full);

    // One frame of the older segment is not applied: it stays.
    let ledger = writer.checkpoint(middle - 2, 0xB0);
    assert_eq!(ledger.epochs, EPOCHS);
    writer.covered(&ledger);
    assert_eq!(writer.fits(frame_bytes(64)), Fit::Full);

    let ledger = writer.checkpoint(middle - 1, 0xB0);
    assert_eq!(ledger.epochs, [0xB0, EPOCHS[1]]);
    assert_eq!(ledger.active, 1);
    assert_eq!(writer.fits(frame_bytes(64)), Fit::Full);
    writer.covered(&ledger);
    assert_eq!(writer.fits(frame_bytes(64)), Fit::Next);
    let bytes = disk.durable();
    let left: Vec<u64> = (middle..next).collect();
    assert_eq!(sequences(&recover(bytes, &ledger, middle - 1)), left);

    writer.append(&as_frames(&group(next, &[64]))).unwrap();
    assert_eq!(writer.ledger().active, 0);
    let found = recover(disk.durable(), &ledger, middle - 1);
    assert_eq!(sequences(&found).last(), Some(&next));
}

#[test]
fn a_segment_begun_between_plan_and_commit_is_found_under_the_older_ledger() {
    let disk = Disk::default();
    let mut writer = begin(&disk, 1, false);
    let middle = fill(&mut writer, 1);
    let ledger = writer.checkpoint(middle - 1, 0xB0);
    assert_eq!((ledger.active, ledger.epochs), (0, EPOCHS));
    writer.append(&as_frames(&group(middle, &[64]))).unwrap();
    let next = fill(&mut writer, middle + 1);
    let left: Vec<u64> = (middle..next).collect();
    assert_eq!(
        sequences(&recover(disk.durable(), &ledger, middle - 1)),
        left
    );
    writer.covered(&ledger);
    // The older segment is not free by this checkpoint, so that what the database names as active stays.
    assert_eq!(writer.fits(frame_bytes(64)), Fit::Full);
    let ledger = writer.checkpoint(middle - 1, 0xB1);
    assert_eq!((ledger.active, ledger.epochs), (1, [0xB1, EPOCHS[1]]));
    writer.covered(&ledger);
    writer.append(&as_frames(&group(next, &[64]))).unwrap();
    let found = recover(disk.durable(), &ledger, middle - 1);
    assert_eq!(sequences(&found), (middle..=next).collect::<Vec<_>>());
}

#[test]
fn an_invalid_tail_without_a_later_group_was_never_acknowledged() {
    let disk = Disk::default();
    let mut writer = begin(&disk, 1, false);
    writer.append(&as_frames(&group(1, &[10, 10]))).unwrap();
    let ledger = writer.ledger();
    writer.append(&as_frames(&group(3, &[10, 10, 10]))).unwrap();
    let whole = disk.durable();
    for sequence in 3..=5 {
        let mut bytes = whole.clone();
        bytes[place(&whole, &ledger, sequence) + FRAME_HEADER_BYTES] ^= 1;
        let expected: Vec<u64> = (1..sequence).collect();
        assert_eq!(sequences(&recover(bytes, &ledger, 0)), expected);
    }
}

#[test]
fn a_valid_frame_counts_only_in_its_turn() {
    let disk = Disk::default();
    let mut writer = begin(&disk, 1, false);
    let ledger = writer.ledger();
    writer.append(&as_frames(&group(1, &[10, 10, 10]))).unwrap();
    let whole = disk.durable();
    let [one, two, three] = [1, 2, 3].map(|sequence| place(&whole, &ledger, sequence));
    for from in [one, three] {
        let mut bytes = whole.clone();
        bytes.copy_within(from..from + (two - one), two);
        assert_eq!(sequences(&recover(bytes, &ledger, 0)), [1]);
    }
}

#[test]
fn every_damaged_byte_of_a_frame_with_a_later_group_behind_it_is_damage() {
    let disk = Disk::default();
    let mut writer = begin(&disk, 1, false);
    let ledger = writer.ledger();
    writer.append(&as_frames(&group(1, &[10, 10]))).unwrap();
    writer.append(&as_frames(&group(3, &[10]))).unwrap();
    let whole = disk.durable();
    for sequence in 1..=2 {
        let at = place(&whole, &ledger, sequence);
        for offset in at..at + FRAME_HEADER_BYTES + 10 {
            for flip in [1, 0x80, 0xFF] {
                let mut bytes = whole.clone();
                bytes[offset] ^= flip;
                let (segment, found, _) = damage(recover(bytes, &ledger, 0));
                assert_eq!((segment, found), (0, at as u64));
            }
        }
    }
}

#[test]
fn damage_is_seen_by_a_later_group_in_the_later_segment() {
    let disk = Disk::default();
    let mut writer = begin(&disk, 1, false);
    let ledger = writer.ledger();
    let middle = fill(&mut writer, 1);
    writer
        .append(&as_frames(&group(middle, &[20, 20])))
        .unwrap();
    let first_only = disk.durable();
    writer
        .append(&as_frames(&group(middle + 2, &[20])))
        .unwrap();
    let whole = disk.durable();

    // The last frame of the older segment, whatever remains of the later segment's header.
    for header_too in [false, true] {
        let mut bytes = whole.clone();
        bytes[place(&whole, &ledger, middle - 1)] ^= 1;
        if header_too {
            bytes[SEGMENT] ^= 1;
        }
        damage(recover(bytes, &ledger, 0));
    }
    // A header belongs to the first group of its segment.
    for offset in SEGMENT..SEGMENT + SEGMENT_HEADER_BYTES {
        let mut bytes = first_only.clone();
        bytes[offset] ^= 1;
        let expected: Vec<u64> = (1..middle).collect();
        assert_eq!(sequences(&recover(bytes, &ledger, 0)), expected);
        let mut bytes = whole.clone();
        bytes[offset] ^= 1;
        assert_eq!(damage(recover(bytes, &ledger, 0)).0, 1);
    }
}

#[test]
fn the_active_segment_must_have_its_header_and_reach_what_was_written() {
    let disk = Disk::default();
    let mut writer = begin(&disk, 1, false);
    writer.append(&as_frames(&group(1, &[10]))).unwrap();
    writer.append(&as_frames(&group(2, &[10]))).unwrap();
    let ledger = writer.checkpoint(2, 0xB0);
    let whole = disk.durable();
    for offset in 0..SEGMENT_HEADER_BYTES {
        let mut bytes = whole.clone();
        bytes[offset] ^= 1;
        assert_eq!(damage(recover(bytes, &ledger, 2)).1, 0);
    }
    let at = place(&whole, &ledger, 2);
    let mut bytes = whole.clone();
    bytes[at] ^= 1;
    assert_eq!(damage(recover(bytes, &ledger, 2)).1, at as u64);
    damage(recover(
        whole.clone(),
        &Ledger {
            active: 1,
            ..ledger
        },
        2,
    ));
    damage(recover(
        whole.clone(),
        &Ledger {
            active: 2,
            ..ledger
        },
        2,
    ));
    damage(recover(whole[..at].to_vec(), &ledger, 2));
    damage(recover(whole[..20].to_vec(), &ledger, 2));
    damage(recover(Vec::new(), &ledger, 2));
    let other_store = Disk::holding(whole);
    damage(read_shaped(
        SHAPE.segment,
        &other_store,
        [0; 16],
        &ledger,
        2,
    ));
}

#[test]
fn segments_must_join_each_other_and_the_database() {
    let disk = Disk::default();
    let mut writer = begin(&disk, 5, false);
    let middle = fill(&mut writer, 5);
    writer.append(&as_frames(&group(middle, &[64]))).unwrap();
    writer
        .append(&as_frames(&group(middle + 1, &[64])))
        .unwrap();
    let ledger = writer.ledger();
    let whole = disk.durable();
    assert_eq!(
        sequences(&recover(whole.clone(), &ledger, 4)).len() as u64,
        middle - 3
    );
    assert_eq!(damage(recover(whole.clone(), &ledger, 3)).1, 0);

    for first in [middle - 1, middle + 1] {
        let mut bytes = whole.clone();
        let mut header = Vec::new();
        put_segment_header(&mut header, STORE, EPOCHS[1], first);
        put(&mut bytes, SEGMENT, &header);
        damage(recover(bytes, &ledger, 4));
    }

    // The older segment is lost. That matters only while the database does not hold all of it.
    let mut bytes = whole;
    bytes[..SEGMENT].fill(0);
    assert_eq!(
        sequences(&recover(bytes.clone(), &ledger, middle - 1)),
        [middle, middle + 1]
    );
    assert_eq!(
        sequences(&recover(bytes.clone(), &ledger, middle)),
        [middle + 1]
    );
    assert_eq!(damage(recover(bytes, &ledger, middle - 2)).0, 1);
}

#[test]
fn the_history_of_an_eventual_journal_ends_at_the_first_loss() {
    let disk = Disk::default();
    let mut writer = begin(&disk, 1, true);
    let (_, syncs) = disk.counts();
    let ledger = writer.ledger();
    assert!(ledger.eventual);
    let middle = fill(&mut writer, 1);
    writer.append(&as_frames(&group(middle, &[64]))).unwrap();
    writer
        .append(&as_frames(&group(middle + 1, &[64])))
        .unwrap();
    assert_eq!(disk.counts().1, syncs, "a group was synced");
    let written = disk.bytes();
    let all: Vec<u64> = (1..=middle + 1).collect();
    assert_eq!(sequences(&recover(written.clone(), &ledger, 0)), all);
    assert_eq!(sequences(&recover(disk.durable(), &ledger, 0)), NONE);

    for lost in [1, 3, middle - 1, middle, middle + 1] {
        let mut bytes = written.clone();
        bytes[place(&written, &ledger, lost)] ^= 1;
        let expected: Vec<u64> = (1..lost).collect();
        assert_eq!(sequences(&recover(bytes.clone(), &ledger, 0)), expected);
        // From a database that is beyond a loss in the older segment, the later one goes on.
        if lost < middle {
            let later = recover(bytes, &ledger, middle - 1);
            assert_eq!(sequences(&later), [middle, middle + 1]);
        }
    }
    let mut bytes = written;
    bytes[SEGMENT] ^= 1;
    assert_eq!(
        sequences(&recover(bytes, &ledger, 0)).len() as u64,
        middle - 1
    );

    writer.sync().unwrap();
    assert_eq!(sequences(&recover(disk.durable(), &ledger, 0)), all);
}

#[test]
fn an_eventual_journal_gives_nothing_that_does_not_follow_on_the_database() {
    let disk = Disk::default();
    let mut writer = begin(&disk, 5, true);
    let middle = fill(&mut writer, 5);
    writer.append(&as_frames(&group(middle, &[64]))).unwrap();
    assert_eq!(sequences(&recover(disk.bytes(), &writer.ledger(), 3)), NONE);
}

#[test]
fn a_failed_group_is_voided_or_uncertain_and_the_writer_is_spent() {
    for switch in [false, true] {
        // Write, sync, then the voiding write and sync.
        for (after, failures) in [(0, 1), (1, 1), (0, 2), (1, 2), (0, 9), (1, 9)] {
            let disk = Disk::default();
            let mut writer = begin(&disk, 1, false);
            let mut next = 1;
            if switch {
                next = fill(&mut writer, next);
            } else {
                writer.append(&as_frames(&group(next, &[20]))).unwrap();
                next += 1;
            }
            let ledger = writer.ledger();
            let acknowledged: Vec<u64> = (1..next).collect();
            let before = disk.durable();
            disk.fail(after, failures);
            let outcome = writer.append(&as_frames(&group(next, &[64, 64, 64])));
            match outcome {
                Err(AppendError::Refused(_)) => assert_eq!(failures, 1),
                Err(AppendError::Uncertain(_)) => {
                    assert!(failures > 1);
                    assert_eq!(writer.void().is_err(), failures > 2);
                    disk.fail(0, 0);
                    writer.void().unwrap();
                }
                Ok(()) => panic!("the failure was not seen"),
            }
            assert_eq!(
                sequences(&recover(disk.durable(), &ledger, 0)),
                acknowledged
            );
            assert_eq!(sequences(&recover(disk.bytes(), &ledger, 0)), acknowledged);
            assert_eq!(disk.durable(), before, "something of the group is left");
            assert_eq!(writer.ledger(), ledger);
            let counts = disk.counts();
            writer.void().unwrap();
            let again = writer.append(&as_frames(&group(next, &[1])));
            assert!(matches!(again, Err(AppendError::Refused(_))));
            assert_eq!(disk.counts(), counts, "a spent writer wrote");
        }
    }
}

#[test]
fn a_group_that_does_not_go_on_or_does_not_fit_is_refused_unwritten() {
    for frames in [group(2, &[10]), group(1, &[SEGMENT])] {
        let disk = Disk::default();
        let mut writer = begin(&disk, 1, false);
        let bytes = disk.bytes();
        assert!(matches!(
            writer.append(&as_frames(&frames)),
            Err(AppendError::Refused(_))
        ));
        assert_eq!(disk.bytes(), bytes);
    }
}

#[test]
fn a_failed_sync_of_an_eventual_journal_spends_it() {
    let disk = Disk::default();
    let mut writer = begin(&disk, 1, true);
    writer.append(&as_frames(&group(1, &[10]))).unwrap();
    disk.fail(0, 1);
    writer.sync().unwrap_err();
    writer.append(&as_frames(&group(2, &[10]))).unwrap_err();
}

#[test]
fn a_journal_that_cannot_be_begun_is_an_error() {
    for after in 0..3 {
        let disk = Disk::default();
        disk.fail(after, 1);
        let begun = Writer::begin_shaped(SHAPE, Box::new(disk.clone()), STORE, EPOCHS, 1, false);
        assert!(begun.is_err());
    }
}

/// What a stop before a sync has ended may leave: the first write torn at `at`, or any sectors of all.
fn torn(before: Unsynced, rng: &mut Rng, at: Option<usize>) -> Vec<u8> {
    let (mut bytes, pending) = before;
    for (offset, data) in &pending {
        match at {
            Some(at) => put(&mut bytes, *offset, &data[..at.min(data.len())]),
            None => {
                for (n, sector) in data.chunks(32).enumerate() {
                    if !rng.next().is_multiple_of(4) {
                        put(&mut bytes, offset + n * 32, sector);
                    }
                }
            }
        }
    }
    bytes
}

#[test]
fn whatever_the_moment_of_a_stop_all_that_was_acknowledged_is_found() {
    for seed in 0..24 {
        println!("seed {seed}");
        let mut rng = Rng(seed);
        let disk = Disk::default();
        let mut writer = begin(&disk, 1, false);
        let mut fresh = 0x1_0000;
        let mut model: Vec<Vec<u8>> = Vec::new();
        let (mut committed, mut recorded) = (writer.ledger(), 0);
        let mut planned = None;
        let mut switches = 0;
        for _ in 0..150 {
            let next = model.len() as u64 + 1;
            let lens: Vec<usize> = (0..=rng.below(3)).map(|_| 1 + rng.below(90)).collect();
            let frames = group(next, &lens);
            let fit = writer.fits(size(&frames));
            switches += usize::from(fit == Fit::Next);
            if fit != Fit::Full {
                let acknowledged = model.len();
                writer.append(&as_frames(&frames)).unwrap();
                model.extend(
                    (next..)
                        .zip(&lens)
                        .map(|(sequence, len)| content(sequence, *len)),
                );
                let length = disk.before_sync().1[0].1.len();
                let mut tears = vec![None; 4];
                if rng.below(8) == 0 {
                    tears.extend((0..=length).map(Some));
                } else {
                    tears.push(Some(rng.below(length + 1)));
                }
                for at in tears {
                    let found =
                        recover(torn(disk.before_sync(), &mut rng, at), &committed, recorded);
                    let reached =
                        usize::try_from(recorded).unwrap() + check(found, recorded, &model);
                    assert!(reached >= acknowledged, "{reached} of {acknowledged}");
                }
            }
            let found = recover(disk.durable(), &committed, recorded);
            let count = check(found, recorded, &model);
            assert_eq!(count as u64 + recorded, model.len() as u64);

            match planned.take() {
                None if rng.below(3) == 0 || fit == Fit::Full => {
                    let behind = rng.below(4).min(model.len());
                    let applied = ((model.len() - behind) as u64).max(recorded);
                    fresh += 1;
                    planned = Some((writer.checkpoint(applied, fresh), applied));
                }
                Some((ledger, applied)) if rng.below(2) == 0 => {
                    (committed, recorded) = (ledger, applied);
                    let found = recover(disk.durable(), &committed, recorded);
                    let count = check(found, recorded, &model);
                    assert_eq!(count as u64 + recorded, model.len() as u64);
                    writer.covered(&committed);
                }
                kept => planned = kept,
            }
        }
        assert!(switches > 5, "only {switches} segments were begun");
    }
}

#[test]
fn a_stop_of_the_process_costs_an_eventual_journal_nothing_and_of_the_machine_only_the_end() {
    for seed in 0..24 {
        println!("seed {seed}");
        let mut rng = Rng(seed);
        let disk = Disk::default();
        let mut writer = begin(&disk, 1, true);
        let mut fresh = 0x1_0000;
        let mut model: Vec<Vec<u8>> = Vec::new();
        let (mut committed, mut recorded) = (writer.ledger(), 0);
        let mut lossy = 0;
        for _ in 0..150 {
            let next = model.len() as u64 + 1;
            let lens: Vec<usize> = (0..=rng.below(3)).map(|_| 1 + rng.below(90)).collect();
            let frames = group(next, &lens);
            let fit = writer.fits(size(&frames));
            if fit != Fit::Full {
                writer.append(&as_frames(&frames)).unwrap();
                model.extend((next..).zip(&lens).map(|(n, len)| content(n, *len)));
            }
            if fit == Fit::Full || rng.below(8) == 0 {
                let behind = rng.below(4).min(model.len());
                let applied = ((model.len() - behind) as u64).max(recorded);
                fresh += 1;
                let ledger = writer.checkpoint(applied, fresh);
                writer.sync().unwrap();
                (committed, recorded) = (ledger, applied);
                writer.covered(&committed);
            }
            let found = recover(disk.bytes(), &committed, recorded);
            let all = check(found, recorded, &model);
            assert_eq!(all as u64 + recorded, model.len() as u64);
            let stopped = torn(disk.unsynced(), &mut rng, None);
            let some = check(recover(stopped, &committed, recorded), recorded, &model);
            lossy += usize::from(some < all);
        }
        assert!(lossy > 5, "only {lossy} stops lost anything");
    }
}

/// Checks that `found` goes on from `recorded` as the model does, and counts it.
fn check(found: Result<Vec<Recovered>, RecoveryError>, recorded: u64, model: &[Vec<u8>]) -> usize {
    let found = match found {
        Ok(found) => found,
        Err(error) => panic!("not recovered: {error}"),
    };
    for (frame, sequence) in found.iter().zip(recorded + 1..) {
        assert_eq!(frame.sequence, sequence);
        let place = usize::try_from(sequence - 1).unwrap();
        assert_eq!(Some(&frame.payload), model.get(place));
    }
    found.len()
}

#[test]
fn no_bytes_make_recovery_panic_or_invent_a_payload() {
    let disk = Disk::default();
    let mut writer = begin(&disk, 1, false);
    let mut next = 1;
    for len in [1, 30, 64, 0, 17, 200, 64, 90, 90, 90, 64, 64, 64] {
        writer.append(&as_frames(&group(next, &[len]))).unwrap();
        next += 1;
    }
    let (whole, ledger) = (disk.durable(), writer.ledger());
    for seed in 0..1500 {
        let mut rng = Rng(seed);
        let mut bytes = whole.clone();
        for _ in 0..=rng.below(4) {
            let at = rng.below(bytes.len());
            match rng.below(4) {
                0 => bytes[at] = rng.next().to_le_bytes()[0],
                1 => bytes.truncate(at.max(1)),
                2 => {
                    let from = rng.below(bytes.len());
                    let len = (bytes.len() - at.max(from)).min(rng.below(300));
                    bytes.copy_within(from..from + len, at);
                }
                _ => bytes[at..]
                    .iter_mut()
                    .take(16)
                    .for_each(|byte| *byte = 0xFF),
            }
        }
        let ledger = Ledger {
            active: u8::try_from(rng.below(3)).unwrap(),
            eventual: rng.below(2) == 0,
            written: rng.next() % (next + 1),
            ..ledger
        };
        let recorded = [0, 4, next, u64::MAX][rng.below(4)];
        if let Ok(found) = recover(bytes, &ledger, recorded) {
            for (frame, sequence) in found.iter().zip(recorded.saturating_add(1)..) {
                assert_eq!(frame.sequence, sequence, "seed {seed}");
                assert_eq!(
                    frame.payload,
                    content(sequence, frame.payload.len()),
                    "seed {seed}"
                );
            }
        }
    }
}
