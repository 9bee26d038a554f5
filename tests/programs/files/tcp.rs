//! Threads that talk to each other over TCP.
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;

fn main() -> std::io::Result<()> {
    // Any port that is free.
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let server = thread::spawn(move || -> std::io::Result<()> {
        for _ in 0..4 {
            let (mut stream, _) = listener.accept()?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            stream.write_all(text.to_uppercase().as_bytes())?;
        }
        Ok(())
    });

    let (sender, receiver) = mpsc::channel();
    for number in 0..4 {
        let sender = sender.clone();
        thread::spawn(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            write!(stream, "client {number}").unwrap();
            // The server reads up to the end, which is this.
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            sender.send(answer).unwrap();
        });
    }

    // With this one there, the list of answers would never end.
    drop(sender);
    let mut answers: Vec<String> = receiver.iter().collect();
    // They come in any order.
    answers.sort();
    println!("{answers:?}");
    server.join().unwrap()
}
