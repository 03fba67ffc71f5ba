use super::*;

pub(super) fn sha256(bytes: &[u8]) -> Hash {
    Hash::new(Sha256::digest(bytes).into())
}

pub(super) async fn bytes_of(stream: BoxStream<'static, io::Result<Bytes>>) -> Vec<u8> {
    let pieces: Vec<Bytes> = stream.try_collect().await.unwrap();
    pieces.concat()
}

async fn staged(disk: &Disk, bytes: &'static [u8]) -> disk::Staged {
    let mut writer = disk.begin(Uuid::from_u128(9)).await.unwrap();
    writer.write(&Bytes::from_static(bytes)).await.unwrap();
    writer.finish().await.unwrap()
}

#[tokio::test]
async fn a_content_has_its_name_only_once_it_is_published() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::open(&folder.path().join("made/on/the/way"), Uuid::nil()).unwrap();
    let hash = sha256(b"bytes");
    let upload = staged(&disk, b"bytes").await;
    assert!(matches!(disk.read(hash, 5, 0, 5).await, Err(Error::Damaged)));
    assert_eq!(disk.hashes().await.unwrap(), []);
    disk.publish(upload, hash).await.unwrap();
    assert_eq!(bytes_of(disk.read(hash, 5, 1, 3).await.unwrap()).await, b"yte");
    assert!(matches!(disk.read(hash, 6, 0, 5).await, Err(Error::Damaged)), "a file of another size is not it");
    // The same content again replaces it, and a dropped upload leaves nothing.
    disk.publish(staged(&disk, b"bytes").await, hash).await.unwrap();
    drop(staged(&disk, b"dropped").await);
    assert_eq!(disk.hashes().await.unwrap(), [hash]);
    assert_eq!(disk.remove_unfinished(DateTime::<Utc>::MAX_UTC).await.unwrap(), 0);
    disk.remove(hash).await.unwrap();
    disk.remove(hash).await.unwrap();
    assert_eq!(disk.hashes().await.unwrap(), []);
}

#[test]
fn what_the_disk_says_is_told_apart() {
    let of = |errno: rustix::io::Errno| Error::from(io::Error::from(errno));
    for full in [rustix::io::Errno::NOSPC, rustix::io::Errno::DQUOT, rustix::io::Errno::FBIG] {
        assert!(matches!(of(full), Error::Full(_)), "{full}");
    }
    assert!(matches!(of(rustix::io::Errno::IO), Error::Unavailable(_)));
    assert!(matches!(of(rustix::io::Errno::NOENT), Error::Damaged));
}
