# The head of a cluster on EC2: the image of docker/Dockerfile with what Ray's autoscaler reaches new machines with.
# docker build -f deploy/aws/head.Dockerfile --build-arg MEMSWEEP_IMAGE=memsweep:cpu -t memsweep:cpu-head deploy/aws
ARG MEMSWEEP_IMAGE=memsweep:cpu
FROM ${MEMSWEEP_IMAGE}
USER root
RUN apt-get -qq update \
 && apt-get -qq install -y --no-install-recommends openssh-client rsync >/dev/null \
 && rm -rf /var/lib/apt/lists/* /var/log/apt /var/log/dpkg.log
USER memsweep
