"""An interruption by a signal of the test's own, after CPU time: whatever handles SIGINT, whatever else is running."""

import contextlib
import faulthandler
import signal
import sys
import time

NEVER = 300  # seconds after which a call that cannot be interrupted ends the test run, with a traceback


@contextlib.contextmanager
def interrupt_after(seconds, exception=KeyboardInterrupt):
    """The exception after so many seconds of this process's CPU time; yields a list to which the handler appends
    the CPU seconds for which nobody had listened."""
    late = []
    begin = time.process_time()

    def handler(*_):
        late.append(time.process_time() - begin - seconds)
        raise exception

    before = signal.signal(signal.SIGPROF, handler)
    faulthandler.dump_traceback_later(NEVER, exit=True, file=sys.__stderr__)  # what captures output has no file
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield late
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGPROF, before)
