"""fedplug in an NVFlare federation: NVFlare carries the messages, and each party is a separate program at its site.

At the server, `controller` is the workflow of a job; `running`, `engine` and `transport` run the recipe through its
tasks. At a site, `relay` is the executor, and `site` passes bytes to the party's program. `job_folder` writes the job.
"""
