use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
};

use serde_json::{Value, json};

use super::*;
use crate::domain::{
    limits::{SAVED_TURNS_OWN_MAX, SAVED_WAITING_OWN_MAX},
    transcript::SavedThread,
};

/// A description of a damage, and how to cause it.
type Damage = (&'static str, fn(&Ground));

struct Ground {
    dir: tempfile::TempDir,
    path: folder::Path,
}

fn ground() -> Ground {
    let dir = tempfile::tempdir().unwrap();
    let path = folder::Path { root: dir.path().join("data/sessions"), below: Some("0f".to_owned()) };
    Ground { dir, path }
}

fn session(name: &str, text: &str) -> SavedSession {
    let messages = vec![json!({"role": "user", "content": text})];
    let at = chrono::DateTime::from_timestamp(1, 0).unwrap();
    SavedSession::new(name.parse().unwrap(), None, SavedThread::fallback(messages), at)
}

/// Waits for its turn, since other threads of the test also write.
fn locked(folder: &Folder) -> cap_std::fs::File {
    loop {
        if let Some(lock) = folder.try_lock().unwrap() {
            return lock;
        }
        std::thread::yield_now();
    }
}

impl Ground {
    fn file(&self, name: &str) -> PathBuf {
        self.path.root.join("0f").join(name)
    }

    fn put(&self, session: &SavedSession) -> Result<(), Error> {
        let folder = self.path.made().unwrap();
        let _lock = locked(&folder);
        put(&folder, session)
    }

    fn list(&self) -> (Vec<String>, Vec<String>, bool) {
        let folder = self.path.found().unwrap().unwrap();
        let (listing, is_fresh) = index::look(&folder).unwrap();
        let names = listing.sessions.iter().map(|entry| entry.name.to_string()).collect();
        (names, listing.unreadable.iter().map(|(name, why)| format!("{name}: {why}")).collect(), is_fresh)
    }

    fn heal(&self) {
        let folder = self.path.made().unwrap();
        let _lock = locked(&folder);
        index::heal(&folder).unwrap();
    }
}

#[test]
fn files_are_for_their_owner_alone_and_the_index_lists_them() {
    let ground = ground();
    assert!(ground.path.found().unwrap().is_none());
    ground.put(&session("b", "hi")).unwrap();
    ground.put(&session("a", "ho")).unwrap();
    assert_eq!(ground.list(), (vec!["a".to_owned(), "b".to_owned()], vec![], true));
    let index: Value = serde_json::from_slice(&fs::read(ground.file("index.json")).unwrap()).unwrap();
    assert_eq!((&index["sessions"][0]["name"], &index["sessions"][1]["first_message"]), (&json!("a"), &json!("hi")));
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(ground.path.root.clone()), mode(ground.file(""))), (0o700, 0o700));
    assert_eq!((mode(ground.file("a.json")), mode(ground.file("index.json"))), (0o600, 0o600));
    assert_eq!(fs::read_to_string(ground.file("a.json")).unwrap(), session("a", "ho").to_text());
}

#[test]
fn the_index_heals_from_the_files_whatever_became_of_it() {
    let ground = ground();
    for name in ["a", "b", "c"] {
        ground.put(&session(name, "hi")).unwrap();
    }
    let damages: [Damage; 5] = [
        ("gone", |ground| fs::remove_file(ground.file("index.json")).unwrap()),
        ("torn", |ground| fs::write(ground.file("index.json"), "{\"sessions\": [{").unwrap()),
        ("changed by hand", |ground| {
            fs::write(ground.file("b.json"), session("b", "something else").to_text()).unwrap();
        }),
        ("a file went", |ground| fs::remove_file(ground.file("c.json")).unwrap()),
        ("a file came", |ground| fs::write(ground.file("d.json"), "{\"thread\":{\"messages\":[]}}").unwrap()),
    ];
    for (what, damage) in damages {
        damage(&ground);
        let (names, _, is_fresh) = ground.list();
        assert!(!is_fresh, "{what}");
        ground.heal();
        assert_eq!(ground.list(), (names, vec![], true), "{what}");
    }
    assert_eq!(ground.list().0, ["a", "b", "d"]);
    let index = fs::read_to_string(ground.file("index.json")).unwrap();
    assert!(index.contains("something else"), "{index}");
}

#[test]
fn what_is_no_session_is_told_apart_and_stays() {
    let ground = ground();
    ground.put(&session("good", "hi")).unwrap();
    let outside = ground.dir.path().join("outside.json");
    fs::write(&outside, session("outside", "secret").to_text()).unwrap();
    symlink(&outside, ground.file("link.json")).unwrap();
    fs::create_dir(ground.file("folder.json")).unwrap();
    fs::write(ground.file("torn.json"), "{\n  \"name\": ").unwrap();
    fs::write(ground.file("two words.json"), "{}").unwrap();
    fs::write(ground.file("Metadata.json"), "{}").unwrap();
    fs::write(ground.file("notes.txt"), "x").unwrap();
    ground.heal();
    let (names, unreadable, is_fresh) = ground.list();
    assert_eq!((names, is_fresh), (vec!["good".to_owned()], true));
    let reported: Vec<&str> = unreadable.iter().map(String::as_str).collect();
    let beginnings = [
        "folder: line 1, column 1: this is a link",
        "link: line 1, column 1: this is a link",
        "torn: line 2",
        "two words: line 1",
    ];
    assert_eq!(reported.len(), beginnings.len(), "{reported:?}");
    assert!(reported.iter().zip(beginnings).all(|(reported, begins)| reported.starts_with(begins)), "{reported:?}");
    for name in ["link.json", "folder.json", "torn.json", "two words.json", "Metadata.json", "notes.txt"] {
        assert!(fs::symlink_metadata(ground.file(name)).is_ok(), "{name} stays");
    }
    // Saving under the name of a link replaces the link; its target stays unchanged.
    ground.put(&session("link", "mine")).unwrap();
    assert!(fs::read_to_string(&outside).unwrap().contains("secret"));
    assert!(fs::symlink_metadata(ground.file("link.json")).unwrap().is_file());
}

#[test]
fn a_folder_that_is_a_link_leads_nowhere() {
    let ground = ground();
    fs::create_dir_all(&ground.path.root).unwrap();
    let outside = ground.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    symlink(&outside, ground.path.root.join("0f")).unwrap();
    assert!(ground.path.found().is_err());
    assert!(ground.path.made().is_err());
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}

#[test]
fn what_a_killed_writer_left_goes_with_the_next_one() {
    let ground = ground();
    ground.put(&session("a", "hi")).unwrap();
    let left = ground.file(".a.json.tmp");
    fs::write(&left, "half of a fi").unwrap();
    assert_eq!(ground.list().0, ["a"]);
    ground.put(&session("a", "ho")).unwrap();
    assert!(!left.exists());
    assert!(fs::read_to_string(ground.file("a.json")).unwrap().contains("ho"));
}

#[test]
fn names_that_differ_by_their_capitals_alone_are_one() {
    let ground = ground();
    ground.put(&session("Trip", "hi")).unwrap();
    assert!(matches!(ground.put(&session("trip", "ho")), Err(Error::Alike(_))));
    ground.put(&session("Trip", "ho")).unwrap();
    assert_eq!(ground.list().0, ["Trip"]);
}

#[test]
fn many_writers_of_one_folder_lose_nothing() {
    let ground = ground();
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let ground = &ground;
            scope.spawn(move || {
                for n in 0..10 {
                    ground.put(&session(&format!("s{writer}-{}", n % 3), &format!("{writer} {n}"))).unwrap();
                    ground.put(&session("shared", &format!("{writer} {n}"))).unwrap();
                }
            });
        }
    });
    let (names, unreadable, is_fresh) = ground.list();
    assert_eq!((names.len(), unreadable.len(), is_fresh), (25, 0, true));
    let left = fs::read_dir(ground.file(""))
        .unwrap()
        .filter(|entry| entry.as_ref().is_ok_and(|entry| entry.file_name().to_string_lossy().ends_with(".tmp")));
    assert_eq!(left.count(), 0);
}

#[test]
fn a_lock_that_is_no_file_is_told_and_not_waited_for() {
    let ground = ground();
    let folder = ground.path.made().unwrap();
    let lock = ground.file(".lock");
    fs::create_dir(&lock).unwrap();
    assert!(folder.try_lock().is_err());
    fs::remove_dir(&lock).unwrap();
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR);
    rustix::fs::mknodat(rustix::fs::CWD, &lock, kind, mode, 0).unwrap();
    assert!(folder.try_lock().is_err());
    fs::remove_file(&lock).unwrap();
    let held = folder.try_lock().unwrap();
    assert!(held.is_some() && folder.try_lock().unwrap().is_none(), "one at a time");
}

#[tokio::test]
async fn whoever_waits_for_a_locked_folder_waits_no_longer_once_the_server_stops() {
    let ground = ground();
    let folder = ground.path.made().unwrap();
    let _held = folder.try_lock().unwrap().unwrap();
    let stop = CancellationToken::new();
    let turns = Turns::new(stop.clone());
    let (locked, ()) = tokio::join!(turns.lock(ground.path.clone()), async { stop.cancel() });
    assert!(matches!(locked, Err(Error::Locked)));
}

#[tokio::test]
async fn a_few_work_at_once_some_wait_and_the_rest_is_refused_to_its_owner_alone() {
    let turns = &Turns::new(CancellationToken::new());
    let (a, b) = (&OwnerId::trusted("a"), OwnerId::trusted("b"));
    let mut working = Vec::new();
    for _ in 0..SAVED_TURNS_OWN_MAX {
        working.push(turns.take(a).await.unwrap());
    }
    let waiting = (0..SAVED_WAITING_OWN_MAX).map(|_| async move { turns.take(a).await.is_ok() });
    let waiting = futures::future::join_all(waiting);
    let rest = async {
        assert!(matches!(turns.take(a).await, Err(Error::Busy)));
        assert!(turns.take(&b).await.is_ok());
        drop(working);
    };
    let (had_their_turn, ()) = tokio::join!(waiting, rest);
    assert!(had_their_turn.into_iter().all(|had| had));
}

#[test]
fn what_could_not_be_read_again_is_not_written() {
    let ground = ground();
    let mut broken = session("a", "hi");
    broken.thread.messages.push(json!({"content": "nobody says it"}));
    assert!(matches!(ground.put(&broken), Err(Error::Refused(_))));
    assert!(!ground.file("a.json").exists());
}
