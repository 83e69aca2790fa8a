//! The scripted conversation on a disk that does not fail.

use transcript_redb::testkit::{DiskImage, SimDisk};

use super::script::{STEPS, World};

/// The disk after so many steps, each with its picture: `disks[n]` and `pictures[n]` after `n` steps.
pub struct Reference {
    pub disks: Vec<DiskImage>,
    pub pictures: Vec<String>,
}

/// Plays all steps.
pub fn reference() -> Reference {
    let disk = SimDisk::new();
    let world = World::open(&disk).unwrap();
    let mut reference = Reference {
        disks: vec![disk.image()],
        pictures: vec![world.picture().unwrap()],
    };
    for (name, step) in STEPS {
        step(&world).unwrap_or_else(|error| panic!("{name}: {error}"));
        let picture = world.picture().unwrap();
        assert_ne!(
            Some(&picture),
            reference.pictures.last(),
            "{name} changes something"
        );
        reference.disks.push(disk.image());
        reference.pictures.push(picture);
    }
    reference
}
