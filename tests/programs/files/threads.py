import concurrent.futures
import queue
import subprocess
import threading

jobs, results = queue.Queue(), []
lock = threading.Lock()


def work():
    while (job := jobs.get()) is not None:
        with lock:
            results.append(job * job)


threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for job in range(20):
    jobs.put(job)
for _ in threads:
    jobs.put(None)
for thread in threads:
    thread.join()
print(sorted(results))
with concurrent.futures.ThreadPoolExecutor(3) as pool:
    print(list(pool.map(lambda n: subprocess.run(["expr", str(n), "+", "1"], capture_output=True).stdout, range(3))))
timer = threading.Timer(0.01, lambda: print("timer"))
timer.start()
timer.join()
