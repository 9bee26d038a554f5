//! Serves clients, waits and starts a child, with tokio.
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout, Duration};

#[tokio::main(worker_threads = 3)]
async fn main() -> std::io::Result<()> {
    // Any port that is free.
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut reading, mut writing) = stream.split();
                tokio::io::copy(&mut reading, &mut writing).await
            });
        }
    });

    let clients: Vec<_> = (0..20)
        .map(|n| {
            tokio::spawn(async move {
                let mut stream = TcpStream::connect(address).await.unwrap();
                stream.write_all(format!("message {n}").as_bytes()).await.unwrap();
                // The echo ends with what it copies.
                stream.shutdown().await.unwrap();
                let mut text = String::new();
                stream.read_to_string(&mut text).await.unwrap();
                text.len()
            })
        })
        .collect();

    let mut sum = 0;
    for client in clients {
        sum += client.await.unwrap();
    }
    println!("{sum}");

    // The sleep is so long that only the timeout can end it.
    println!("{}", timeout(Duration::from_millis(5), sleep(Duration::from_secs(60))).await.is_err());
    let output = tokio::process::Command::new("echo").arg("child").output().await?;
    print!("{}", String::from_utf8_lossy(&output.stdout));
    Ok(())
}
