//! The scripted conversation, played without a checkpoint.

use transcript_redb::testkit::{DiskImage, SimDisk};

use crate::rig::at_rest;
use crate::support::script::{STEPS, World};

/// What a killed process left after each step, from before the first, and what was read then.
pub struct Played {
    pub images: Vec<DiskImage>,
    pub pictures: Vec<String>,
}

pub fn play() -> Played {
    let disk = SimDisk::new();
    let world = open(&disk);
    let mut played = Played {
        images: vec![disk.image()],
        pictures: vec![world.picture().unwrap()],
    };
    for (name, step) in STEPS {
        step(&world).unwrap_or_else(|error| panic!("{name}: {error}"));
        played.images.push(disk.image());
        played.pictures.push(world.picture().unwrap());
    }
    played
}

pub fn open(disk: &SimDisk) -> World {
    World::over(disk.open(at_rest(World::builder())).unwrap()).unwrap()
}

/// What a process that starts on this image reads.
pub fn shown(image: DiskImage) -> String {
    open(&SimDisk::with_image(image)).picture().unwrap()
}
