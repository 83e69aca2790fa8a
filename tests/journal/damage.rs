//! Journals that are missing, of another store or time, or damaged: an error that changes nothing, never a history that
//! is shorter than what was acknowledged.

use std::ops::Range;
use std::thread;

use transcript_redb::testkit::{DiskCall, DiskImage, SimDisk};
use transcript_redb::{ErrorKind, Store};

use crate::rig::{Rig, at_rest, contents, found_in, open, row, wait_for_stats};

fn stride(default: usize) -> usize {
    std::env::var("JOURNAL_STRIDE")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

/// Opening it is an error, again and again, and no byte of either file changes.
#[track_caller]
fn assert_refused(image: &DiskImage, what: &str) {
    let disk = SimDisk::with_image(image.clone());
    for read_only in [false, true, false] {
        let builder = at_rest(Store::builder()).read_only(read_only);
        let error = match disk.open(builder) {
            Err(error) => error,
            Ok(store) => panic!("{what}: it opens with {:?}", contents(&store, 0)),
        };
        if read_only {
            let kinds = [ErrorKind::Corrupted, ErrorKind::NeedsRecovery];
            assert!(kinds.contains(&error.kind()), "{what}: {error}");
        } else {
            assert_eq!(error.kind(), ErrorKind::Corrupted, "{what}: {error}");
        }
        assert!(disk.image() == *image, "{what}: it was changed");
    }
}

/// Where two journals differ, from the first byte to the last.
fn difference(before: &DiskImage, after: &DiskImage) -> Range<usize> {
    let (before, after) = (before.journal(), after.journal());
    let byte = |at: usize| before.get(at).copied().unwrap_or(0);
    let mut differing = (0..after.len()).filter(|at| after[*at] != byte(*at));
    let first = differing.next().expect("the journal has grown");
    first..differing.next_back().unwrap_or(first) + 1
}

/// A store that was killed after so many groups of one turn each, and where each of them stands in the journal.
fn killed(groups: usize) -> (DiskImage, Vec<Range<usize>>) {
    let rig = Rig::new();
    let mut places = Vec::new();
    for number in 0..groups {
        let before = rig.disk.image();
        rig.append(&format!("{number}"));
        places.push(difference(&before, &rig.disk.image()));
    }
    (rig.disk.image(), places)
}

fn with_journal(image: &DiskImage, journal: &[u8]) -> DiskImage {
    DiskImage::new(image.database().to_vec(), journal.to_vec())
}

#[test]
fn a_journal_that_is_missing_emptied_or_cut_is_not_taken_for_a_short_one() {
    let (image, places) = killed(5);
    assert_refused(&with_journal(&image, &[]), "missing");
    let zeros = vec![0; image.journal().len()];
    assert_refused(&with_journal(&image, &zeros), "emptied");
    // It was made in its full length before it counted.
    for len in [1, 40, places[0].start, places[2].start, places[4].start] {
        let cut = &image.journal()[..len];
        assert_refused(&with_journal(&image, cut), &format!("{len} bytes of it"));
    }
    let others = vec![0xA5; image.journal().len()];
    assert_refused(&with_journal(&image, &others), "overwritten");
}

#[test]
fn the_journal_of_another_store_is_refused() {
    let (image, _) = killed(5);
    let (other, _) = killed(5);
    assert_refused(&with_journal(&image, other.journal()), "of another store");
    let (longer, _) = killed(9);
    assert_refused(&with_journal(&image, longer.journal()), "a longer one");
}

#[test]
fn the_journal_of_an_earlier_time_of_the_store_is_refused() {
    let rig = Rig::new();
    rig.append("second");
    let before = rig.disk.image();
    drop(rig.store);
    let store = rig.disk.open(at_rest(Store::builder())).unwrap();
    open(&store, 0).append(row("third")).unwrap();
    let after = rig.disk.image();
    drop(store);
    assert_refused(
        &with_journal(&after, before.journal()),
        "of before the close",
    );
    assert_refused(&with_journal(&before, after.journal()), "of a later time");

    // The same without a close between them.
    let killed = SimDisk::with_image(before.clone());
    let store = killed.open(at_rest(Store::builder())).unwrap();
    open(&store, 0).append(row("third")).unwrap();
    open(&store, 0).append(row("fourth")).unwrap();
    let recovered = killed.image();
    assert_refused(
        &with_journal(&recovered, before.journal()),
        "of before a kill",
    );
}

#[test]
fn a_damaged_byte_with_a_later_group_behind_it_is_never_a_shorter_history() {
    let (image, places) = killed(6);
    let (last, acknowledged) = places.split_last().unwrap();
    let mut tried = 0;
    let in_a_group = |at: usize| acknowledged.iter().any(|group| group.contains(&at));
    let stride = stride(11);
    for at in 0..last.start {
        // Besides the groups all that was written before them: the header, and the first one.
        if !in_a_group(at) && image.journal()[at] == 0 {
            continue;
        }
        tried += 1;
        if tried % stride != 0 {
            continue;
        }
        let mut damaged = image.clone();
        damaged.journal_mut()[at] ^= 1 << (at % 8);
        assert_refused(&damaged, &format!("byte {at}"));
    }
    assert!(tried > 300, "{tried} bytes");
}

#[test]
fn an_acknowledged_group_that_is_gone_is_missed() {
    let (image, places) = killed(6);
    for (number, group) in places[..places.len() - 1].iter().enumerate() {
        let mut damaged = image.clone();
        damaged.journal_mut()[group.clone()].fill(0);
        assert_refused(&damaged, &format!("group {number} is zeros"));
    }
    // The bytes of another group in its place.
    for number in 1..places.len() - 1 {
        let mut damaged = image.clone();
        let (from, to) = (places[number - 1].clone(), places[number].clone());
        let len = from.len().min(to.len());
        let copied = image.journal()[from.start..from.start + len].to_vec();
        damaged.journal_mut()[to.start..to.start + len].copy_from_slice(&copied);
        assert_refused(&damaged, &format!("group {number} is the one before it"));
    }
}

#[test]
fn a_damaged_last_group_is_one_that_was_never_whole() {
    let (image, places) = killed(6);
    let whole = found_in(image.clone());
    assert_eq!(whole.len(), 7);
    for at in places[5].clone().step_by(stride(3)) {
        let mut damaged = image.clone();
        damaged.journal_mut()[at] ^= 1 << (at % 8);
        assert_eq!(found_in(damaged), whole[..6], "byte {at}");
    }
    // What is written behind a torn tail is not taken for its end.
    let mut torn = image.clone();
    torn.journal_mut()[places[5].start] ^= 1;
    let disk = SimDisk::with_image(torn);
    let store = disk.open(at_rest(Store::builder())).unwrap();
    open(&store, 0).append(row("instead")).unwrap();
    let found = found_in(disk.image());
    assert_eq!(found[..6], whole[..6]);
    assert_eq!(found[6..], ["instead"]);
}

#[test]
fn of_a_last_group_of_many_turns_damage_leaves_whole_turns() {
    let rig = Rig::new();
    let mut before = DiskImage::default();
    thread::scope(|scope| {
        let held = rig.journal().hold(DiskCall::Sync);
        let leader = scope.spawn(|| rig.append("led"));
        held.wait_for(1);
        before = rig.disk.image();
        for number in 1..=4 {
            let history = open(&rig.store, number);
            scope.spawn(move || history.append(row("followed")).unwrap());
            wait_for_stats(&rig.store, |stats| stats.queued_changes == number);
        }
        drop(held);
        leader.join().unwrap();
    });
    let image = rig.disk.image();
    let mut seen = [false; 5];
    for at in difference(&before, &image).step_by(stride(7)) {
        let mut damaged = image.clone();
        damaged.journal_mut()[at] ^= 1 << (at % 8);
        let disk = SimDisk::with_image(damaged);
        let store = disk.open(at_rest(Store::builder())).unwrap();
        assert_eq!(contents(&store, 0), ["first", "led"], "byte {at}");
        let written = |number: &usize| open(&store, *number).read_session().unwrap().is_some();
        let kept = (1..=4).take_while(written).count();
        for number in 1..=4 {
            if number <= kept {
                assert_eq!(contents(&store, number), ["followed"], "byte {at}");
            } else {
                assert!(!written(&number), "byte {at}: {number} without {kept}");
            }
        }
        seen[kept] = true;
    }
    assert!(seen[0] && !seen[4], "{seen:?}");
}
