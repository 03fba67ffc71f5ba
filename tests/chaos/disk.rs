//! A disk that gets full, fails, and loses its power.

use std::{fs, io::Write as _, path::PathBuf};

use tokio::process::Command;

use crate::{cluster, site::Site};

const DISK_BYTES: u64 = 200 << 20;
/// `EXT4_IOC_SHUTDOWN` with `EXT4_GOING_FLAGS_NOLOGFLUSH` (linux, fs/ext4/ext4.h): not even the file system's journal is
/// written. Rust has no safe `ioctl`.
const SHUTDOWN: &str = "import fcntl, os, struct, sys\n\
                        fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587D, struct.pack('I', 2))";

/// A small disk in a file. It is mounted in the harness's own namespace and disappears with it.
#[derive(Debug)]
pub(crate) struct Disk {
    image: PathBuf,
    pub(crate) folder: PathBuf,
}

impl Disk {
    pub(crate) async fn mount(site: &Site) -> anyhow::Result<Self> {
        let disk = Self { image: site.file("disk.img"), folder: site.file("disk") };
        fs::File::create(&disk.image)?.set_len(DISK_BYTES)?;
        cluster::run(disk.command("mkfs.ext4", &["-q", "-m", "0"])).await?;
        fs::create_dir(&disk.folder)?;
        disk.attach().await?;
        Ok(disk)
    }

    /// A program applied to the image.
    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).arg(&self.image).stdout(std::process::Stdio::null());
        command
    }

    async fn attach(&self) -> anyhow::Result<()> {
        let mut mount = self.command("mount", &["-o", "loop,errors=remount-ro"]);
        mount.arg(&self.folder);
        cluster::run(mount).await
    }

    fn filler(&self) -> PathBuf {
        self.folder.join("filler")
    }

    pub(crate) fn fill(&self) -> anyhow::Result<()> {
        let mut filler = fs::File::create(self.filler())?;
        // In smaller and smaller pieces, so that nothing is left over.
        for piece in [1 << 20, 64 << 10, 4 << 10, 512] {
            let piece = vec![0x55; piece];
            while filler.write_all(&piece).is_ok() {}
            let _ = filler.sync_all();
        }
        Ok(())
    }

    pub(crate) fn free(&self) -> anyhow::Result<()> {
        fs::remove_file(self.filler())?;
        // Otherwise the space is taken again on a disk that fails soon after.
        Ok(fs::File::open(&self.folder)?.sync_all()?)
    }

    /// As the kernel does after a device error.
    pub(crate) async fn fail(&self) -> anyhow::Result<()> {
        let mut mount = Command::new("mount");
        mount.args(["-o", "remount,abort"]).arg(&self.folder);
        cluster::run(mount).await
    }

    /// Nothing that is not on the disk yet gets there, as when the power goes.
    pub(crate) async fn lose_power(&self) -> anyhow::Result<()> {
        let mut ioctl = Command::new("python3");
        ioctl.arg("-c").arg(SHUTDOWN).arg(&self.folder);
        cluster::run(ioctl).await
    }

    pub(crate) async fn repair(&self) -> anyhow::Result<()> {
        let mut umount = Command::new("umount");
        umount.arg(&self.folder);
        cluster::run(umount).await?;
        // It reports fixed errors by a special exit status.
        let _ = self.command("e2fsck", &["-fy"]).stderr(std::process::Stdio::null()).status().await?;
        self.attach().await
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.folder).status();
    }
}
