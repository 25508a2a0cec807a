//! Tests of the simulated disk itself: crash tests prove nothing on a disk that remembers.

use super::*;
use futures_util::future::join_all;

fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(future)
}

fn filled(bytes: usize, value: u8) -> SharedBuf {
    let mut buf = AlignedBuf::with_capacity(bytes);
    buf.set_len(bytes);
    buf.fill(value);
    buf.freeze()
}

async fn contents(engine: &FaultEngine, path: &Path) -> io::Result<Vec<u8>> {
    let file = engine.open(path, OpenMode::Read).await?;
    let (read, buf) = file.read_at(AlignedBuf::with_capacity(1 << 20), 0).await;
    read.map(|_| buf.to_vec())
}

const PATH: &str = "/data/file";

async fn create(disk: &FaultDisk) -> (FaultEngine, Rc<dyn DirectFile>) {
    let engine = FaultEngine::new(disk);
    engine.create_dir_all(Path::new("/data")).await.unwrap();
    let file = engine.open(Path::new(PATH), OpenMode::CreateNew).await.unwrap();
    (engine, file)
}

#[test]
fn without_flushes_nothing_stays() {
    block_on(async {
        let disk = FaultDisk::new(1);
        let (engine, file) = create(&disk).await;
        file.write_at(filled(4096, 1), 0).await.unwrap();
        assert_eq!(contents(&engine, Path::new(PATH)).await.unwrap(), [1; 4096]);
        disk.crash(Survivors::None);
        let engine = FaultEngine::new(&disk);
        assert_eq!(engine.list_dir(Path::new("/data")).await.unwrap(), [""; 0]);
    });
}

#[test]
fn an_entry_needs_its_directory_flushed_and_contents_their_file() {
    block_on(async {
        let check = |sync: bool, sync_dir: bool, expected: Option<usize>| async move {
            let disk = FaultDisk::new(2);
            let (engine, file) = create(&disk).await;
            file.write_at(filled(8192, 7), 0).await.unwrap();
            if sync {
                file.sync().await.unwrap();
            }
            if sync_dir {
                engine.sync_dir(Path::new("/data")).await.unwrap();
            }
            disk.crash(Survivors::None);
            let found = contents(&FaultEngine::new(&disk), Path::new(PATH)).await.ok();
            assert_eq!(found.map(|bytes| bytes.len()), expected);
        };
        check(false, false, None).await;
        check(true, false, None).await;
        check(false, true, Some(0)).await;
        check(true, true, Some(8192)).await;
    });
}

#[test]
fn a_write_after_the_flush_is_torn_and_the_old_bytes_stay_between() {
    block_on(async {
        let (mut whole, mut none, mut torn) = (0, 0, 0);
        for seed in 0..200 {
            let disk = FaultDisk::new(seed);
            let (engine, file) = create(&disk).await;
            file.write_at(filled(65536, 1), 0).await.unwrap();
            file.sync().await.unwrap();
            engine.sync_dir(Path::new("/data")).await.unwrap();
            file.write_at(filled(65536, 2), 0).await.unwrap();
            disk.crash(Survivors::Random);
            let bytes = contents(&FaultEngine::new(&disk), Path::new(PATH)).await.unwrap();
            assert!(bytes.iter().all(|b| matches!(b, 1 | 2)));
            assert!(bytes.chunks(512).all(|sector| sector.iter().all(|b| *b == sector[0])));
            match bytes.iter().filter(|b| **b == 2).count() {
                0 => none += 1,
                65536 => whole += 1,
                _ => torn += 1,
            }
        }
        assert!(whole > 20 && none > 20 && torn > 20, "{whole} {none} {torn}");
    });
}

#[test]
fn a_rename_is_all_or_nothing() {
    block_on(async {
        let (mut old, mut new) = (0, 0);
        for seed in 0..50 {
            let disk = FaultDisk::new(seed);
            let (engine, file) = create(&disk).await;
            file.write_at(filled(4096, 1), 0).await.unwrap();
            file.sync().await.unwrap();
            engine.sync_dir(Path::new("/data")).await.unwrap();
            engine.rename(Path::new(PATH), Path::new("/data/new")).await.unwrap();
            disk.crash(Survivors::Random);
            let names = FaultEngine::new(&disk).list_dir(Path::new("/data")).await.unwrap();
            match names.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                ["file"] => old += 1,
                ["new"] => new += 1,
                ref other => panic!("half a rename: {other:?}"),
            }
        }
        assert!(old > 5 && new > 5);
    });
}

#[test]
fn a_failed_flush_is_never_made_good() {
    block_on(async {
        let mut lost = 0;
        for seed in 0..50 {
            let disk = FaultDisk::new(seed);
            let (engine, file) = create(&disk).await;
            engine.sync_dir(Path::new("/data")).await.unwrap();
            file.write_at(filled(4096, 1), 0).await.unwrap();
            disk.inject(Fault::next(Op::Sync, FaultError::Io));
            assert!(file.sync().await.is_err());
            file.sync().await.unwrap();
            assert_eq!(contents(&engine, Path::new(PATH)).await.unwrap(), [1; 4096]);
            disk.crash(Survivors::All);
            let bytes = contents(&FaultEngine::new(&disk), Path::new(PATH)).await.unwrap();
            lost += u32::from(bytes != [1; 4096]);
        }
        assert!(lost > 10, "{lost}");
    });
}

#[test]
fn faults_strike_where_they_are_told() {
    block_on(async {
        let disk = FaultDisk::new(3);
        let (_, file) = create(&disk).await;
        let full = Fault::next(Op::Write, FaultError::NoSpace);
        disk.inject(Fault { path_contains: "other".into(), ..full.clone() });
        disk.inject(Fault { path_contains: "file".into(), skip: 1, times: 2, ..full });
        let results = [
            file.write_at(filled(4096, 1), 0).await.is_ok(),
            file.write_at(filled(4096, 1), 0).await.is_ok(),
            file.write_at(filled(4096, 1), 0).await.is_ok(),
            file.write_at(filled(4096, 1), 0).await.is_ok(),
        ];
        assert_eq!(results, [true, false, false, true]);
        disk.inject(Fault::next(Op::Write, FaultError::NoSpace));
        let error = file.write_at(filled(4096, 1), 0).await.err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    });
}

#[test]
fn power_goes_at_every_point_and_old_handles_die() {
    block_on(async {
        for cut in 0..4 {
            let disk = FaultDisk::new(cut);
            let (_, file) = create(&disk).await;
            disk.cut_power_after(cut);
            let mut done = 0;
            while file.write_at(filled(4096, 1), 0).await.is_ok() {
                done += 1;
            }
            assert_eq!(done, cut);
            assert!(file.sync().await.is_err(), "nothing works without power");
            disk.crash(Survivors::All);
            assert!(file.sync().await.is_err(), "the process is dead");
            let engine = FaultEngine::new(&disk);
            assert!(engine.open(Path::new(PATH), OpenMode::Read).await.is_ok());
        }
    });
}

#[test]
fn unaligned_and_read_only_access_is_refused() {
    block_on(async {
        let disk = FaultDisk::new(4);
        let (engine, file) = create(&disk).await;
        assert!(file.write_at(filled(4096, 1), 512).await.is_err());
        assert!(file.write_at(filled(100, 1), 0).await.is_err());
        assert!(file.read_at(AlignedBuf::with_capacity(4096), 1).await.0.is_err());
        let reader = engine.open(Path::new(PATH), OpenMode::Read).await.unwrap();
        assert!(reader.write_at(filled(4096, 1), 0).await.is_err());
    });
}

#[test]
fn a_flush_does_not_cover_a_write_that_is_still_on_its_way() {
    block_on(async {
        let mut missed = 0;
        for seed in 0..50 {
            let disk = FaultDisk::new(seed);
            let (engine, file) = create(&disk).await;
            engine.sync_dir(Path::new("/data")).await.unwrap();
            let write = file.write_at(filled(4096, 1), 0);
            let (_, synced) = futures_util::future::join(write, file.sync()).await;
            synced.unwrap();
            disk.crash(Survivors::None);
            let bytes = contents(&FaultEngine::new(&disk), Path::new(PATH)).await.unwrap();
            missed += u32::from(bytes.is_empty());
        }
        assert!((5..45).contains(&missed), "{missed}");
    });
}

#[test]
fn a_dropped_write_happens_all_the_same() {
    block_on(async {
        for seed in 0..20 {
            let disk = FaultDisk::new(seed);
            let (engine, file) = create(&disk).await;
            let mut write = file.write_at(filled(4096, 5), 0);
            let _ = futures_util::poll!(&mut write);
            drop(write);
            assert_eq!(contents(&engine, Path::new(PATH)).await.unwrap(), [5; 4096]);
        }
    });
}

#[test]
fn the_same_seed_gives_the_same_disk() {
    let run = |seed| {
        block_on(async move {
            let disk = FaultDisk::new(seed);
            let (engine, file) = create(&disk).await;
            engine.sync_dir(Path::new("/data")).await.unwrap();
            let writes = (0..16u64).map(|n| file.write_at(filled(4096, n as u8 + 1), n * 4096));
            join_all(writes).await;
            disk.crash(Survivors::Random);
            contents(&FaultEngine::new(&disk), Path::new(PATH)).await.unwrap()
        })
    };
    assert_eq!(run(9), run(9));
    assert_ne!(run(9), run(10));
}

#[test]
fn truncation_allocation_and_rot() {
    block_on(async {
        let disk = FaultDisk::new(5);
        let (engine, file) = create(&disk).await;
        file.allocate(0, 1 << 28).await.unwrap();
        assert_eq!(file.len().await.unwrap(), 1 << 28);
        file.write_at(filled(8192, 1), 0).await.unwrap();
        file.truncate(5000).await.unwrap();
        file.allocate(0, 8192).await.unwrap();
        let bytes = contents(&engine, Path::new(PATH)).await.unwrap();
        assert!(bytes[..5000].iter().all(|b| *b == 1) && bytes[5000..].iter().all(|b| *b == 0));
        assert!(disk.flip_bit(Path::new(PATH), 3, 7));
        assert!(!disk.flip_bit(Path::new(PATH), 8192, 0));
        assert_eq!(contents(&engine, Path::new(PATH)).await.unwrap()[3], 0x81);
        assert_eq!(disk.files(), [(PathBuf::from(PATH), 8192)]);
    });
}

#[test]
fn one_disk_serves_many_threads() {
    let disk = FaultDisk::new(6);
    block_on(FaultEngine::new(&disk).create_dir_all(Path::new("/data"))).unwrap();
    let threads: Vec<_> = (0..4)
        .map(|n| {
            let disk = disk.clone();
            std::thread::spawn(move || {
                block_on(async {
                    let engine = FaultEngine::new(&disk);
                    let path = PathBuf::from(format!("/data/{n}"));
                    let file = engine.open(&path, OpenMode::CreateNew).await.unwrap();
                    file.write_at(filled(4096, n), 0).await.unwrap();
                    file.sync().await.unwrap();
                    engine.sync_dir(Path::new("/data")).await.unwrap();
                })
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    disk.crash(Survivors::None);
    assert_eq!(disk.files().len(), 4);
    assert_eq!((disk.stats().writes, disk.stats().syncs, disk.stats().dir_syncs), (4, 4, 4));
}
