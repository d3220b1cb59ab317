"""A child process that ends with its parent, however that ends: a killed run leaves nothing behind."""

import os
import threading
import time

WATCH_S = 0.5


def die_with(parent: int) -> None:
    """End this process at once when it is no longer the child of `parent`, even in the middle of work."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH_S)
        os._exit(1)

    threading.Thread(target=watch, name="parent watch", daemon=True).start()
