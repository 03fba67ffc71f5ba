//! Second ways into the log and onto the bus, which the compiler must refuse: `run` adds this file to the core and
//! compares each error with the one that is named beside its line.

use crate::{
    bus::{Bus, Frame, Publisher},
    store::{Store, append::Appenders},
    timeline::Timeline,
};

pub fn publishes_on_the_bus_of_the_timeline(timeline: &Timeline, frame: Frame) {
    timeline.bus().publish(frame); //~ no method named `publish` found for reference `&Bus`
}

pub fn makes_a_publisher_for_it(timeline: &Timeline, frame: Frame) {
    Publisher(timeline.bus().clone()).publish(frame); //~ cannot initialize a tuple struct which contains private fields
}

pub fn copies_a_publisher(publisher: &Publisher) -> Publisher {
    publisher.clone() //~ mismatched types
}

pub fn takes_the_gate(timeline: &Timeline) -> crate::timeline::publish::Gate { //~ module `publish` is private
    timeline.shared.gate.clone() //~ field `shared` of struct `timeline::Timeline` is private
}

pub async fn makes_the_right_to_append(store: Store) {
    let _ = Appenders(store).open(0).await; //~ cannot initialize a tuple struct which contains private fields
}

pub fn copies_the_right_to_append(appenders: &Appenders) -> Appenders {
    appenders.clone() //~ mismatched types
}

pub fn takes_a_connection_of_the_pool(store: &Store) {
    let _ = store.0.pool.acquire(); //~ field `0` of struct `Store` is private
}
