import multiprocessing
import os
import signal


def square(number):
    return number * number


def child(queue, event):
    event.wait()
    queue.put("from the child")


if __name__ == "__main__":
    with multiprocessing.Pool(2) as pool:
        print(pool.map(square, range(10)))
    queue, event = multiprocessing.Queue(), multiprocessing.Event()
    process = multiprocessing.Process(target=child, args=(queue, event))
    process.start()
    event.set()
    print(queue.get())
    process.join()
    print(process.exitcode)
    value = multiprocessing.Value("i", 0)
    pid = os.fork()
    if pid == 0:
        value.value = 5
        os.kill(os.getpid(), signal.SIGKILL)
    print(os.WTERMSIG(os.waitpid(pid, 0)[1]), value.value)
