//! The file system of the data directory, and the disks below it.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{Finding, human, read, read_number};
use crate::sys::probe::{self, DirectAlignment, FileSystem, FileSystemKind, XfsStripe};

/// Less room than this share of the disk, as a divisor, is worth a word: file systems slow down.
const FREE_SHARE_MIN: u64 = 20;
/// Less room than this forbids serving: one commit log segment must fit.
const FREE_BYTES_MIN: u64 = 256 << 20;
/// Layers of device mapper and md looked through; real machines have two or three.
const LAYERS_MAX: usize = 6;

pub(super) fn examine(root: &Path, data_dir: &Path) -> Vec<Finding> {
    const ABOUT: &str = "data directory";
    let mut findings = Vec::new();
    let Some(dir) = nearest_existing(data_dir) else {
        let found = format!("{} cannot be examined", data_dir.display());
        return vec![Finding::fatal(ABOUT, found, "name a directory that may be looked into")];
    };
    let shown = dir.display();
    findings.push(match dir == data_dir {
        true => Finding::ok(ABOUT, format!("{shown}")),
        false => {
            let advice = "serve makes it";
            let found = format!("{} does not exist; looked at {shown}", data_dir.display());
            Finding::note(ABOUT, found, advice)
        }
    });
    match probe::file_system(&dir) {
        Ok(system) => {
            findings.push(kind(system.kind));
            findings.push(room(system));
            findings.extend(inodes(system));
        }
        Err(error) => {
            let advice = "name a directory that may be looked into";
            findings.push(Finding::fatal("file system", format!("unknown: {error}"), advice));
        }
    }
    findings.push(direct_io(probe::try_direct_write(&dir)));
    let device = fs::metadata(&dir).ok().map(|meta| meta.dev());
    let numbers = device.map(|dev| format!("{}:{}", device_major(dev), device_minor(dev)));
    let layers = numbers.map_or(Vec::new(), |numbers| layers(root, &numbers));
    findings.extend(disks(&layers, probe::xfs_stripe(&dir).ok()));
    findings
}

/// Major number of a device, as glibc's gnu_dev_major(3) takes it apart.
fn device_major(device: u64) -> u64 {
    ((device >> 8) & 0xfff) | ((device >> 32) & !0xfff)
}

/// Minor number of a device; see `device_major`.
fn device_minor(device: u64) -> u64 {
    (device & 0xff) | ((device >> 12) & !0xff)
}

/// The directory itself, or the nearest one above it that exists.
fn nearest_existing(dir: &Path) -> Option<PathBuf> {
    let absolute = std::path::absolute(dir).ok()?;
    let found = absolute.ancestors().find(|dir| dir.is_dir())?;
    Some(if found == absolute { dir.to_owned() } else { found.to_owned() })
}

fn kind(kind: FileSystemKind) -> Finding {
    const ABOUT: &str = "file system";
    match kind {
        FileSystemKind::Xfs | FileSystemKind::Ext => Finding::ok(ABOUT, kind.to_string()),
        FileSystemKind::Tmpfs => Finding::problem(
            ABOUT,
            "tmpfs: everything is lost when the machine stops",
            "put the data directory on a disk, for anything but a trial",
        ),
        FileSystemKind::Nfs | FileSystemKind::Smb | FileSystemKind::Fuse => Finding::problem(
            ABOUT,
            format!("{kind}: locks and flushes may not mean what the store relies on"),
            "put the data directory on a local disk with XFS or ext4",
        ),
        FileSystemKind::Overlay => Finding::note(
            ABOUT,
            "overlayfs: the data goes when the container goes",
            "mount a volume for the data directory",
        ),
        FileSystemKind::Btrfs | FileSystemKind::Zfs => Finding::note(
            ABOUT,
            format!("{kind}: copy-on-write, slower for direct writes"),
            "XFS is what the store is measured on",
        ),
        FileSystemKind::F2fs | FileSystemKind::Other(_) => {
            Finding::note(ABOUT, kind.to_string(), "XFS is what the store is measured on")
        }
    }
}

fn room(system: FileSystem) -> Finding {
    const ABOUT: &str = "free space";
    let found = format!("{} of {}", human(system.free_bytes), human(system.size_bytes));
    if system.free_bytes < FREE_BYTES_MIN {
        return Finding::fatal(ABOUT, found, "make room: a commit log segment does not fit");
    }
    if system.free_bytes < system.size_bytes / FREE_SHARE_MIN {
        return Finding::note(ABOUT, found, "make room: file systems slow down when nearly full");
    }
    Finding::ok(ABOUT, found)
}

fn inodes(system: FileSystem) -> Option<Finding> {
    const ABOUT: &str = "inodes";
    if system.inodes == 0 {
        return None;
    }
    let found = format!("{} of {} free", system.inodes_free, system.inodes);
    if system.inodes_free >= system.inodes / FREE_SHARE_MIN {
        return Some(Finding::ok(ABOUT, found));
    }
    let advice = "each object above 256 KiB is a file: use XFS, or ext4 with more inodes";
    Some(Finding::note(ABOUT, found, advice))
}

fn direct_io(result: io::Result<Option<DirectAlignment>>) -> Finding {
    const ABOUT: &str = "direct I/O";
    match result {
        Ok(Some(DirectAlignment { memory, offset })) if memory <= 4096 && offset <= 4096 => {
            let found = format!("works; alignment {memory} in memory, {offset} in the file");
            Finding::ok(ABOUT, found)
        }
        Ok(Some(DirectAlignment { memory, offset })) => Finding::problem(
            ABOUT,
            format!("alignment {memory} in memory, {offset} in the file; the store uses 4096"),
            "use a file system with blocks of 4096 bytes or less",
        ),
        Ok(None) => Finding::ok(ABOUT, "works; this file system does not tell its alignment"),
        Err(error) => match error.kind() {
            io::ErrorKind::InvalidInput => Finding::note(
                ABOUT,
                "not supported here: the page cache keeps a second copy of everything",
                "use XFS or ext4 on a local disk",
            ),
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Finding::fatal(
                ABOUT,
                format!("cannot write: {error}"),
                "run this as the user of the server, and let that user write here",
            ),
            _ => Finding::note(ABOUT, format!("not tried: {error}"), "the server will try itself"),
        },
    }
}

/// One block device on the way from the file system down to the disks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Layer {
    name: String,
    rotational: bool,
    /// "write back" or "write through".
    write_cache: String,
    raid: Option<Raid>,
}

/// An md array.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Raid {
    level: String,
    disks: u64,
    chunk_bytes: u64,
    missing: u64,
    stripe_cache_pages: Option<u64>,
    activity: String,
}

impl Raid {
    /// Bytes of data in one full stripe; `None` where that means nothing.
    fn stripe_bytes(&self) -> Option<u64> {
        let parity = match self.level.as_str() {
            "raid0" => 0,
            "raid4" | "raid5" => 1,
            "raid6" => 2,
            _ => return None,
        };
        Some(self.disks.checked_sub(parity)? * self.chunk_bytes)
    }
}

/// The device of the file system and, through partitions, device mapper and md, what is below.
fn layers(root: &Path, numbers: &str) -> Vec<Layer> {
    let mut found = Vec::new();
    let mut next = fs::canonicalize(root.join("sys/dev/block").join(numbers)).ok();
    while let Some(mut dir) = next.take() {
        if found.len() == LAYERS_MAX {
            break;
        }
        if dir.join("partition").exists() {
            // The queue belongs to the whole disk.
            dir.pop();
        }
        found.push(read_layer(&dir));
        // The first one below stands for all: arrays are made of equal disks.
        next = fs::read_dir(dir.join("slaves"))
            .ok()
            .and_then(|mut below| below.next()?.ok())
            .and_then(|below| fs::canonicalize(below.path()).ok());
    }
    found
}

fn read_layer(dir: &Path) -> Layer {
    let raid = read(dir, "md/level").map(|level| Raid {
        level,
        disks: read_number(dir, "md/raid_disks").unwrap_or(0),
        chunk_bytes: read_number(dir, "md/chunk_size").unwrap_or(0),
        missing: read_number(dir, "md/degraded").unwrap_or(0),
        stripe_cache_pages: read_number(dir, "md/stripe_cache_size"),
        activity: read(dir, "md/sync_action").unwrap_or_default(),
    });
    Layer {
        name: dir.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        rotational: read_number(dir, "queue/rotational") == Some(1),
        write_cache: read(dir, "queue/write_cache").unwrap_or_default(),
        raid,
    }
}

fn disks(layers: &[Layer], xfs: Option<XfsStripe>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let Some(lowest) = layers.last() else {
        let advice = "nothing to do, when the disks are known to be fine";
        return vec![Finding::note("disks", "not visible behind this file system", advice)];
    };
    let names: Vec<&str> = layers.iter().map(|layer| layer.name.as_str()).collect();
    let sort = if lowest.rotational { "reported as spinning" } else { "SSD or virtual" };
    let cache = match lowest.write_cache.as_str() {
        "" => String::new(),
        cache => format!(", {cache} cache"),
    };
    findings.push(Finding::ok("disks", format!("{} ({sort}{cache})", names.join(" on "))));
    let raid = layers.iter().find_map(|layer| Some((&layer.name, layer.raid.as_ref()?)));
    if let Some((name, raid)) = raid {
        findings.push(array(name, raid));
        findings.extend(stripe_cache(name, raid));
    }
    findings.extend(xfs.and_then(|xfs| stripes(xfs, raid.map(|(_, raid)| raid))));
    findings
}

fn array(name: &str, raid: &Raid) -> Finding {
    const ABOUT: &str = "RAID";
    let stripe = raid.stripe_bytes().map_or(String::new(), |bytes| {
        format!(", chunk {}, full stripe {}", human(raid.chunk_bytes), human(bytes))
    });
    let activity = match raid.activity.as_str() {
        "" | "idle" => String::new(),
        busy => format!(", {busy} under way"),
    };
    let found = format!("{name}: {} of {} disks{stripe}{activity}", raid.level, raid.disks);
    match raid.missing {
        0 => Finding::ok(ABOUT, found),
        missing => {
            let found = format!("{found}; {missing} missing");
            Finding::problem(ABOUT, found, format!("replace the disk: mdadm --detail /dev/{name}"))
        }
    }
}

fn stripe_cache(name: &str, raid: &Raid) -> Option<Finding> {
    /// The kernel's default, too small for several full stripes of many disks.
    const PAGES_DEFAULT: u64 = 256;
    let pages = raid.stripe_cache_pages.filter(|&pages| pages <= PAGES_DEFAULT)?;
    let advice = format!("echo 8192 > /sys/block/{name}/md/stripe_cache_size");
    Some(Finding::note("RAID", format!("{name}: stripe cache of {pages} pages a disk"), advice))
}

/// Whether XFS knows the geometry of the array.
fn stripes(xfs: XfsStripe, raid: Option<&Raid>) -> Option<Finding> {
    const ABOUT: &str = "XFS stripe";
    let told = format!("unit {}, width {}", human(xfs.unit_bytes), human(xfs.width_bytes));
    let Some((raid, stripe)) = raid.and_then(|raid| Some((raid, raid.stripe_bytes()?))) else {
        return (xfs.unit_bytes > 0).then(|| Finding::ok(ABOUT, told));
    };
    if (xfs.unit_bytes, xfs.width_bytes) == (raid.chunk_bytes, stripe) {
        return Some(Finding::ok(ABOUT, told));
    }
    let chunk = raid.chunk_bytes;
    let advice = format!(
        "mkfs.xfs -d su={chunk},sw={} when it is made anew, or mount with \
         sunit={},swidth={}",
        stripe / chunk.max(1),
        chunk / 512,
        stripe / 512,
    );
    Some(Finding::note(ABOUT, format!("{told}, which is not the array's"), advice))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::Level;
    use super::super::tests::tree;
    use super::*;

    /// A partition of an encrypted volume on RAID6 of spinning disks.
    fn raid6(degraded: &str, stripe_cache: &str) -> tempfile::TempDir {
        let dev = "sys/devices";
        let root = tree(&[
            (&format!("{dev}/virtual/block/dm-0/queue/rotational"), "1\n"),
            (&format!("{dev}/virtual/block/md0/queue/rotational"), "1\n"),
            (&format!("{dev}/virtual/block/md0/md/level"), "raid6\n"),
            (&format!("{dev}/virtual/block/md0/md/raid_disks"), "12\n"),
            (&format!("{dev}/virtual/block/md0/md/chunk_size"), "262144\n"),
            (&format!("{dev}/virtual/block/md0/md/degraded"), degraded),
            (&format!("{dev}/virtual/block/md0/md/sync_action"), "check\n"),
            (&format!("{dev}/virtual/block/md0/md/stripe_cache_size"), stripe_cache),
            (&format!("{dev}/pci/block/sdb/queue/rotational"), "1\n"),
            (&format!("{dev}/pci/block/sdb/queue/write_cache"), "write back\n"),
            (&format!("{dev}/pci/block/sdb/sdb1/partition"), "1\n"),
        ]);
        let at = |path: &str| root.path().join(path);
        for (upper, lower) in [
            ("virtual/block/dm-0", "virtual/block/md0"),
            ("virtual/block/md0", "pci/block/sdb/sdb1"),
        ] {
            let slaves = at(&format!("{dev}/{upper}/slaves"));
            fs::create_dir_all(&slaves).unwrap();
            symlink(at(&format!("{dev}/{lower}")), slaves.join("below")).unwrap();
        }
        fs::create_dir_all(at("sys/dev/block")).unwrap();
        symlink(at(&format!("{dev}/virtual/block/dm-0")), at("sys/dev/block/253:0")).unwrap();
        root
    }

    #[test]
    fn an_array_is_found_below_other_layers() {
        let root = raid6("0\n", "8192\n");
        let layers = layers(root.path(), "253:0");
        let names: Vec<_> = layers.iter().map(|layer| layer.name.as_str()).collect();
        assert_eq!(names, ["dm-0", "md0", "sdb"]);
        let stripe = XfsStripe { unit_bytes: 256 << 10, width_bytes: 2560 << 10 };
        let found = disks(&layers, Some(stripe));
        assert!(found.iter().all(|finding| finding.level == Level::Ok), "{found:?}");
        assert_eq!(found[0].found, "dm-0 on md0 on sdb (reported as spinning, write back cache)");
        assert_eq!(
            found[1].found,
            "md0: raid6 of 12 disks, chunk 256.0 KiB, full stripe 2.5 MiB, check under way"
        );
    }

    #[test]
    fn a_degraded_array_and_a_wrong_geometry_are_said() {
        let root = raid6("1\n", "256\n");
        let layers = layers(root.path(), "253:0");
        let found = disks(&layers, Some(XfsStripe { unit_bytes: 0, width_bytes: 0 }));
        assert_eq!((found[1].level, found[1].forbids_serving), (Level::Problem, false));
        assert!(found[2].advice.as_deref().unwrap().contains("md0/md/stripe_cache_size"));
        let advice = found[3].advice.as_deref().unwrap();
        assert!(advice.contains("su=262144,sw=10") && advice.contains("swidth=5120"), "{advice}");
    }

    #[test]
    fn a_device_that_is_not_there_is_only_noted() {
        assert_eq!(layers(tree(&[]).path(), "0:35"), []);
        assert_eq!(disks(&[], None)[0].level, Level::Note);
    }

    #[test]
    fn room_and_inodes_are_judged_by_share_and_by_need() {
        let system = |free, inodes_free| FileSystem {
            kind: FileSystemKind::Ext,
            size_bytes: 100 << 30,
            free_bytes: free,
            inodes: 1000,
            inodes_free,
        };
        assert_eq!(room(system(50 << 30, 1000)).level, Level::Ok);
        assert_eq!(room(system(4 << 30, 1000)).level, Level::Note);
        assert!(room(system(1 << 20, 1000)).forbids_serving);
        assert_eq!(inodes(system(0, 10)).unwrap().level, Level::Note);
        assert_eq!(inodes(FileSystem { inodes: 0, ..system(0, 0) }), None);
    }

    #[test]
    fn every_answer_of_a_direct_write_is_judged() {
        let align = |memory, offset| Ok(Some(DirectAlignment { memory, offset }));
        assert_eq!(direct_io(align(4, 512)).level, Level::Ok);
        assert_eq!(direct_io(align(512, 65_536)).level, Level::Problem);
        assert_eq!(direct_io(Ok(None)).level, Level::Ok);
        assert_eq!(direct_io(Err(io::ErrorKind::InvalidInput.into())).level, Level::Note);
        assert!(direct_io(Err(io::ErrorKind::PermissionDenied.into())).forbids_serving);
        assert_eq!(direct_io(Err(io::ErrorKind::Unsupported.into())).level, Level::Note);
    }

    #[test]
    fn device_numbers_are_taken_apart() {
        assert_eq!((device_major(0xfe00), device_minor(0xfe00)), (254, 0));
        assert_eq!((device_major(0x10_0801), device_minor(0x10_0801)), (8, 257));
    }

    #[test]
    fn a_directory_that_does_not_exist_is_looked_at_from_above() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(nearest_existing(&dir.path().join("a/b")).unwrap(), dir.path());
        assert_eq!(nearest_existing(dir.path()).unwrap(), dir.path());
    }
}
