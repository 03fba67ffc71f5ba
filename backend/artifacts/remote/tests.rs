use object_store::memory::InMemory;

use super::*;
use crate::artifacts::tests::{bytes_of, sha256};

fn remote() -> (Arc<InMemory>, Remote) {
    let store = Arc::new(InMemory::new());
    (Arc::clone(&store), Remote::new(store, "team/x", Uuid::nil()))
}

async fn keep(remote: &Remote, pieces: &[Bytes]) -> Hash {
    let mut writer = remote.begin(Uuid::from_u128(7));
    for piece in pieces {
        writer.write(piece).await.unwrap();
    }
    let hash = sha256(&pieces.concat());
    remote.publish(writer.finish().await.unwrap(), hash).await.unwrap();
    hash
}

async fn names(store: &InMemory) -> Vec<String> {
    store.list(None).map_ok(|object| object.location.to_string()).try_collect().await.unwrap()
}

#[tokio::test]
async fn small_and_large_contents_come_back_whole_and_in_parts() {
    let (store, remote) = remote();
    let large = vec![Bytes::from(vec![5; PART_BYTES]), Bytes::from(vec![6; 3 * PART_BYTES + 1])];
    for pieces in [vec![], vec![Bytes::from_static(b"x")], vec![large[0].clone()], large] {
        let (whole, hash) = (pieces.concat(), keep(&remote, &pieces).await);
        let size = whole.len() as u64;
        assert_eq!(bytes_of(remote.read(hash, size, 0, size).await.unwrap()).await, whole);
        if size > 0 {
            let tail = remote.read(hash, size, size - 1, 1).await.unwrap();
            assert_eq!(bytes_of(tail).await, whole[whole.len() - 1..]);
        }
        assert!(matches!(remote.read(hash, size + 1, 0, 0).await, Err(Error::Damaged)));
    }
    let names = names(&store).await;
    let home = format!("team/x/{}/sha256/", Uuid::nil().simple());
    assert!(names.len() == 4 && names.iter().all(|name| name.starts_with(&home)), "{names:?}");
}

#[tokio::test]
async fn what_is_removed_is_gone_and_what_is_left_is_listed() {
    let (store, remote) = remote();
    let (gone, kept) =
        (keep(&remote, &[Bytes::from_static(b"a")]).await, keep(&remote, &[Bytes::from_static(b"b")]).await);
    remote.remove(gone).await.unwrap();
    remote.remove(gone).await.unwrap();
    assert!(matches!(remote.read(gone, 1, 0, 1).await, Err(Error::Damaged)));
    let listed: Vec<Vec<Stored>> = remote.list().try_collect().await.unwrap();
    assert_eq!(listed.concat(), [Stored { hash: kept, size: 1 }]);
    store.put(&remote.below(&["tmp", "half"]), "x".into()).await.unwrap();
    assert_eq!(remote.remove_unfinished(DateTime::UNIX_EPOCH).await.unwrap(), 0);
    assert_eq!(remote.remove_unfinished(DateTime::<Utc>::MAX_UTC).await.unwrap(), 1);
    assert_eq!(names(&store).await.len(), 1);
}

#[tokio::test]
async fn an_upload_that_is_given_up_leaves_no_object() {
    let (store, remote) = remote();
    let mut writer = remote.begin(Uuid::from_u128(7));
    writer.write(&Bytes::from(vec![5; 2 * PART_BYTES])).await.unwrap();
    writer.abort().await;
    assert_eq!(names(&store).await, Vec::<String>::new());
}
