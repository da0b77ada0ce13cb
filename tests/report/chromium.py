"""Chromium without a screen, driven through the pipe of its DevTools protocol. Standard library only."""
import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time


def begin():
    """A test HADAL SOURCE OUT ..: these three, and the browser's program; OUT is made anew. Without a browser the test is skipped."""
    hadal, source, out = sys.argv[1:4]
    program = shutil.which(os.environ.get("BROWSER", "chromium"))
    if not program:
        print("skipped: there is no chromium (tools/deps.sh --tests installs it)")
        sys.exit(77)
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    return hadal, source, out, program


def expect(shown, wanted, what):
    assert shown == wanted, f"{what}: shown {shown!r}, wanted {wanted!r}"


class Browser:
    def __init__(self, program):
        to_child, self.write = os.pipe()
        self.read, from_child = os.pipe()
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)

        def connect():  # the protocol is on descriptors 3 and 4
            a, b = os.dup(to_child), os.dup(from_child)
            os.dup2(a, 3)
            os.dup2(b, 4)

        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe",
             "--no-first-run", "--disable-extensions", "--disable-component-update", "--disable-background-networking",
             "--force-color-profile=srgb", "--user-data-dir=" + self.profile.name, "about:blank"],
            preexec_fn=connect, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env={**os.environ, "HOME": self.profile.name})
        os.close(to_child)
        os.close(from_child)
        self.numbers = itertools.count(1)
        self.buffer = b""
        self.events = []

    def receive(self, seconds):
        """The next message; None after so long without one."""
        end = time.monotonic() + seconds
        while b"\0" not in self.buffer:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.read], [], [], left)[0]:
                return None
            data = os.read(self.read, 1 << 20)
            if not data:
                raise RuntimeError("chromium has gone")
            self.buffer += data
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, session=None, **params):
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive(30)
            if answer is None:
                raise RuntimeError(f"no answer to {method}")
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def page(self):
        return Page(self)

    def close(self):
        try:
            self.call("Browser.close")
        except (RuntimeError, OSError):
            pass
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.profile.cleanup()


class Page:
    def __init__(self, browser):
        self.browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Performance"):
            self.call(domain + ".enable")

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def shape(self, width, height, scheme):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, path, link=""):
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url="file://" + path.replace("%", "%25").replace("#", "%23").replace("?", "%3F") + link)
        self.until("document.documentElement?.dataset.ready === 'true'")

    def run(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(f"{expression}\n{json.dumps(answer['exceptionDetails'])[:800]}")
        return answer["result"].get("value")

    def until(self, condition, seconds=20):
        end = time.monotonic() + seconds
        while not self.run(condition):
            if time.monotonic() > end:
                raise AssertionError("never: " + condition)
            time.sleep(0.02)

    def go(self, link):
        self.run(f"location.hash = {json.dumps(link)}")
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def key(self, key, text=None):
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def screenshot(self, path):
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def complaints(self):
        """Errors on the console, exceptions, and anything that was asked for from outside of the file."""
        out = []
        for event in self.browser.events:
            kind, params = event.get("method"), event.get("params", {})
            if kind == "Runtime.exceptionThrown":
                out.append(json.dumps(params)[:600])
            if kind == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
                out.append(json.dumps(params["args"])[:600])
            if kind == "Log.entryAdded" and params["entry"]["level"] == "error":
                out.append(json.dumps(params["entry"])[:600])
            if kind == "Network.requestWillBeSent" and not params["request"]["url"].startswith(("file:", "about:", "blob:", "data:")):
                out.append("asked for " + params["request"]["url"])
        self.browser.events.clear()
        return out
