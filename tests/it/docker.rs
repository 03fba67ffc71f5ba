//! What the page about Docker sets up, without an engine, which no test has: the database of its SQL, the two secrets,
//! and the program as the image starts it, with the settings of the `docker run` line.

use std::{collections::BTreeMap, path::Path};

use sqlx::{AssertSqlSafe, Connection as _};
use tokio::process::Command;

use crate::support::{
    api::Api,
    cluster::{Db, share_roles},
    page::{blocks, done, serving, task},
};

const DOCKERFILE: &str = include_str!("../../deploy/Dockerfile");

/// The settings in the image and those of the `docker run` line, with the mounted files where they are on this machine.
fn settings(run: &str, folder: &Path) -> BTreeMap<String, String> {
    let words: Vec<String> = run.split_whitespace().map(|word| word.replace('"', "")).collect();
    let after = |flag: &str| {
        let pairs = words.windows(2).filter(|pair| pair[0] == flag);
        pairs.map(|pair| pair[1].clone()).collect::<Vec<_>>()
    };
    let (_, image) = DOCKERFILE.split_once("\nENV ").unwrap();
    let image = image.split("\n\n").next().unwrap().split_whitespace().filter(|word| *word != "\\");
    let all = image.map(str::to_owned).chain(after("-e"));
    let pair = |pair: String| pair.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned())).unwrap();
    let mut settings: BTreeMap<String, String> = all.map(pair).collect();
    for mount in after("-v") {
        let (from, to) = mount.split_once(':').unwrap();
        let to = to.trim_end_matches(":ro");
        let here = folder.join(from.trim_start_matches("$PWD/")).display().to_string();
        for value in settings.values_mut().filter(|value| *value == to) {
            value.clone_from(&here);
        }
    }
    let inside = after("-p")[0].rsplit_once(':').unwrap().1.to_owned();
    assert!(settings["RUNREEL_LISTEN"].ends_with(&format!(":{inside}")), "the published port is not the server's");
    assert!(DOCKERFILE.contains("CMD [\"serve\"]") && words.last().unwrap() == "runreel");
    settings
}

#[tokio::test]
async fn the_page_about_docker_leads_to_a_server_that_its_token_opens() {
    let page = task("docker");
    let (db, folder) = (Db::new().await, tempfile::tempdir().unwrap());
    let name = format!("docker_{}", db.name);
    let mut admin = db.connect().await;
    for statement in blocks(&page, "sql")[0].replace("runreel", &name).split(';').map(str::trim) {
        sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&mut admin).await.unwrap();
    }
    share_roles(&mut admin, &name).await;
    let mut url = reqwest::Url::parse(&db.url()).unwrap();
    url.set_username(&name).unwrap();
    url.set_password(Some("%E2%80%A6")).unwrap();
    url.set_path(&name);

    let commands = blocks(&page, "sh")[0].replace("\\\n", " ");
    let of = |start: &str| commands.lines().find(|line| line.contains(start)).unwrap().to_owned();
    assert!(of("docker build").contains("-f deploy/Dockerfile"));
    let url_of_the_page = of("> database_url").split('\'').nth(1).unwrap().to_owned();
    let secrets = format!("{}\n{}", of("> database_url").replace(&url_of_the_page, url.as_str()), of("> jwt_secret"));
    done(&secrets, |command| _ = command.current_dir(folder.path())).await;
    let settings = settings(&of("docker run"), folder.path());
    let container = |command: &mut Command| _ = command.envs(&settings).env("RUNREEL_LISTEN", "127.0.0.1:0");
    let served = serving("runreel serve", container).await;
    done(&of("/readyz").replace("http://127.0.0.1:7717", &served.base), |_| ()).await;
    let created = done(of("token create").trim_start_matches("docker exec runreel "), container).await;
    let token = created.stdout.lines().last().unwrap().to_owned();
    Api::new(served.base.clone()).with(token).start_run().await;

    drop(served);
    for statement in [format!("drop database {name} with (force)"), format!("drop role {name}")] {
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut admin).await.unwrap();
    }
    admin.close().await.unwrap();
}
