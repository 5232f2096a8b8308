"""The inputs of a module's forward, kept on disk: written in the job, listed and read outside it.

Not named `capture`: that is the function which jobs call, `hangbisect.capture(module)`.
"""
