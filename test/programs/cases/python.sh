# needs: python3
cat >t.py <<'PY'
import subprocess, os, threading, multiprocessing, asyncio, json, hashlib, tempfile, shutil, signal, socket, select, sys, mmap, time

def square(x):
    return x * x

async def child(i):
    p = await asyncio.create_subprocess_exec("/bin/echo", str(i), stdout=asyncio.subprocess.PIPE)
    out, _ = await p.communicate()
    return out.decode().strip()

async def main():
    print(await asyncio.gather(*(child(i) for i in range(5))))
    await asyncio.sleep(0.01)
    q = asyncio.Queue()
    async def producer():
        for i in range(3):
            await q.put(i)
    async def consumer():
        return [await q.get() for _ in range(3)]
    print((await asyncio.gather(producer(), consumer()))[1])
    try:
        await asyncio.wait_for(asyncio.sleep(10), 0.05)
    except asyncio.TimeoutError:
        print("timeout")

if __name__ == "__main__":
    print(subprocess.run(["sh", "-c", "echo out; echo err >&2; exit 9"], capture_output=True))
    print(subprocess.check_output("echo $0", shell=True))
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(w, b"from the child")
        os._exit(4)
    print(os.read(r, 100), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    total, lock = [0], threading.Lock()
    def work():
        for _ in range(1000):
            with lock:
                total[0] += 1
    ts = [threading.Thread(target=work) for _ in range(8)]
    [t.start() for t in ts]; [t.join() for t in ts]
    print(total)
    with multiprocessing.Pool(4) as pool:
        print(pool.map(square, range(10)))
    s = multiprocessing.Semaphore()
    print(s.acquire(), multiprocessing.Value("i", 3).value)
    asyncio.run(main())
    a, b = socket.socketpair()
    a.sendall(b"x" * 100000) if False else a.send(b"hello")
    print(b.recv(10), select.select([a], [b], [], 0)[1] == [b])
    d = tempfile.mkdtemp()
    open(d + "/f", "w").write("x" * 10000)
    shutil.copytree(d, d + "2"); print(os.path.getsize(d + "2/f")); shutil.rmtree(d); shutil.rmtree(d + "2")
    signal.signal(signal.SIGALRM, lambda *_: print("alarm")); signal.setitimer(signal.ITIMER_REAL, 0.02); signal.pause()
    m = mmap.mmap(-1, 8192); m[0:5] = b"hello"; print(m[:5])
    print(hashlib.sha256(b"abc" * 100000).hexdigest(), sys.version_info[0])
    print(shutil.disk_usage("/").total > 0, os.cpu_count() >= 1, len(os.listdir("/proc/self/fd")) >= 3)
    sys.exit(6)
PY
python3 t.py
