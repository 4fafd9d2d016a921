"""fedplug in an NVFlare federation: NVFlare carries the messages, and each party is a separate program at its site.

At the server, `controller` runs the recipe as a workflow of a job, and `engine` and `transport` send through its tasks.
At a site, `relay` is the executor: it passes bytes to the party's program. `job_folder` writes the job.
"""
