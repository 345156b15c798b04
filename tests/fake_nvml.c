/* A stand-in for NVML, NVIDIA's library, that tests build and put where pynvml finds it; it simulates one GPU of 400 W.

It has the functions that opcost asks for. FAKE_NVML_FAULTS names a file with words, which is read at each call:

FUNCTION=CODE            this function (nvmlDeviceGetSamples, ...) returns an error of NVML
device=CODE              all functions that ask the GPU do
samples_empty            the ring of power samples is empty
samples_restart          it holds nothing from before it was first asked under this word
samples_repeated         each sample comes twice
samples_reversed         the newest sample comes first
samples_jump_back        every tenth sample is dated one second too early
samples_ahead            every tenth sample is dated one hour too late
samples_of_uptime        samples are dated from the computer's start
samples_type=N           their values are of another type
samples_mw=N             their value in mW
every_fifth_sample_mw=N  the value of some
counter_still            the energy counter does not move
counter_backwards        it runs backwards
counter_restart          it begins at zero again
counter_leaps            it shows 10 MW
busy_percent=N           for how much of the time a kernel ran, default 0
processes=N              how many processes compute on the GPU beside this one

FAKE_NVML_LIMIT names a file with the power limit in mW, 700000 without it; setting the limit writes it.

A function that an older library lacks is renamed when this is built: cc -DnvmlDeviceGetSamples=missing ... */

#define _DEFAULT_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };
enum { POWER_MW = 400000, SAMPLE_US = 20000, RING = 119, TICK_US = 100000, READ_US = 1000, UNSIGNED_INT = 1 };
#define SECOND_US 1000000LL
#define UUID "GPU-11111111-2222-3333-4444-555555555555"

typedef struct { char words[1024]; } Faults;
typedef struct { unsigned long long time_us; union { unsigned milliwatts; unsigned long long widest; } value; } Sample;
typedef struct { unsigned gpu_percent, memory_percent; } Utilization;
typedef struct { unsigned pid; unsigned long long memory_bytes; unsigned instance, compute_instance; } Process;

static long long first_tick;
static long long restart_us;

static long long now_us(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * SECOND_US + now.tv_nsec / 1000;
}

static Faults faults_now(void)
{
    Faults faults = {" "};
    const char *path = getenv("FAKE_NVML_FAULTS");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (file) {
        size_t length = fread(faults.words + 1, 1, sizeof faults.words - 3, file);
        faults.words[length + 1] = ' ';
        fclose(file);
    }
    return faults;
}

/* Return the number behind a word, 1 where there is none, and what was given where the word is not among the faults. */
static long long fault(const Faults *faults, const char *word, long long otherwise)
{
    size_t length = strlen(word);
    const char *found = faults->words;
    while ((found = strstr(found, word))) {
        if (found[-1] == ' ' && found[length] == ' ')
            return 1;
        if (found[-1] == ' ' && found[length] == '=')
            return atoll(found + length + 1);
        found += length;
    }
    return otherwise;
}

static int refusal(const Faults *faults, const char *function)
{
    return (int)fault(faults, function, fault(faults, "device", SUCCESS));
}

const char *nvmlErrorString(int code)
{
    return code == 27 ? "Not Ready" : "An Error Of A Newer Driver";
}

int nvmlInitWithFlags(unsigned flags)
{
    Faults faults = faults_now();
    (void)flags;
    if (!first_tick)
        first_tick = now_us(CLOCK_REALTIME) / TICK_US;
    return (int)fault(&faults, "nvmlInitWithFlags", SUCCESS);
}

int nvmlShutdown(void)
{
    Faults faults = faults_now();
    return (int)fault(&faults, "nvmlShutdown", SUCCESS);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle)
{
    Faults faults = faults_now();
    *handle = &first_tick;
    return strcmp(uuid, UUID) ? NOT_FOUND : refusal(&faults, "nvmlDeviceGetHandleByUUID");
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = 1;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle)
{
    *handle = &first_tick;
    return index ? NOT_FOUND : SUCCESS;
}

int nvmlDeviceGetUUID(void *handle, char *uuid, unsigned length)
{
    (void)handle;
    snprintf(uuid, length, "%s", UUID);
    return SUCCESS;
}

int nvmlDeviceGetName(void *handle, char *name, unsigned length)
{
    (void)handle;
    snprintf(name, length, "simulated GPU");
    return SUCCESS;
}

int nvmlDeviceGetTotalEnergyConsumption(void *handle, unsigned long long *energy_mj)
{
    Faults faults = faults_now();
    long long ticks = now_us(CLOCK_REALTIME) / TICK_US - first_tick;
    long long moved_mj = ticks * TICK_US / 1000 * POWER_MW / 1000;
    long long begin_mj = 1000000000;
    (void)handle;
    usleep(READ_US);
    if (fault(&faults, "counter_still", 0))
        moved_mj = 0;
    if (fault(&faults, "counter_backwards", 0))
        moved_mj = -moved_mj;
    if (fault(&faults, "counter_restart", 0))
        begin_mj = 0;
    if (fault(&faults, "counter_leaps", 0))
        moved_mj = ticks * 1000000000;
    *energy_mj = (unsigned long long)(begin_mj + moved_mj);
    return refusal(&faults, "nvmlDeviceGetTotalEnergyConsumption");
}

static Sample sample_of(const Faults *faults, long long index)
{
    Sample sample = {0};
    sample.time_us = (unsigned long long)(index * SAMPLE_US);
    sample.value.milliwatts = (unsigned)fault(faults, "samples_mw", POWER_MW + (index % 3 - 1) * 1000);
    if (index % 5 == 0)
        sample.value.milliwatts = (unsigned)fault(faults, "every_fifth_sample_mw", sample.value.milliwatts);
    if (index % 10 == 0 && fault(faults, "samples_jump_back", 0))
        sample.time_us -= SECOND_US;
    if (index % 10 == 0 && fault(faults, "samples_ahead", 0))
        sample.time_us += 3600 * SECOND_US;
    return sample;
}

int nvmlDeviceGetSamples(
    void *handle, int kind, unsigned long long after_us, int *value_type, unsigned *count, Sample *samples)
{
    Faults faults = faults_now();
    clockid_t clock = fault(&faults, "samples_of_uptime", 0) ? CLOCK_MONOTONIC : CLOCK_REALTIME;
    long long last = now_us(clock) / SAMPLE_US;
    unsigned copies = fault(&faults, "samples_repeated", 0) ? 2 : 1;
    unsigned room = samples ? *count : copies * RING;
    int refused = refusal(&faults, "nvmlDeviceGetSamples");
    (void)handle;
    (void)kind;
    if (refused)
        return refused;
    if (fault(&faults, "samples_restart", 0) && !restart_us)
        restart_us = now_us(clock);
    *value_type = (int)fault(&faults, "samples_type", UNSIGNED_INT);
    *count = 0;
    for (int place = 0; place < RING && !fault(&faults, "samples_empty", 0); place++) {
        int back = fault(&faults, "samples_reversed", 0) ? place : RING - 1 - place;
        Sample sample = sample_of(&faults, last - back);
        if (sample.time_us <= after_us || sample.time_us < (unsigned long long)restart_us)
            continue;
        for (unsigned copy = 0; copy < copies && *count < room; copy++) {
            if (samples)
                samples[*count] = sample;
            ++*count;
        }
    }
    return *count ? SUCCESS : NOT_FOUND;
}

int nvmlDeviceGetUtilizationRates(void *handle, Utilization *utilization)
{
    Faults faults = faults_now();
    (void)handle;
    utilization->gpu_percent = (unsigned)fault(&faults, "busy_percent", 0);
    utilization->memory_percent = 0;
    return refusal(&faults, "nvmlDeviceGetUtilizationRates");
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, Process *processes)
{
    Faults faults = faults_now();
    unsigned room = processes ? *count : 0;
    int refused = refusal(&faults, "nvmlDeviceGetComputeRunningProcesses_v3");
    (void)handle;
    if (refused)
        return refused;
    *count = 1 + (unsigned)fault(&faults, "processes", 0);
    if (room < *count)
        return INSUFFICIENT_SIZE;
    for (unsigned place = 0; place < *count; place++)
        processes[place] = (Process){place ? 1000000 + place : (unsigned)getpid(), 0, 0, 0};
    return SUCCESS;
}

int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending)
{
    Faults faults = faults_now();
    (void)handle;
    *current = *pending = (unsigned)fault(&faults, "mig", 0);
    return refusal(&faults, "nvmlDeviceGetMigMode");
}

int nvmlDeviceGetPowerManagementLimit(void *handle, unsigned *limit_mw)
{
    Faults faults = faults_now();
    const char *path = getenv("FAKE_NVML_LIMIT");
    FILE *file = path ? fopen(path, "r") : NULL;
    (void)handle;
    if (!file || fscanf(file, "%u", limit_mw) != 1)
        *limit_mw = 700000;
    if (file)
        fclose(file);
    return refusal(&faults, "nvmlDeviceGetPowerManagementLimit");
}

int nvmlDeviceGetPowerManagementLimitConstraints(void *handle, unsigned *lowest_mw, unsigned *highest_mw)
{
    Faults faults = faults_now();
    (void)handle;
    *lowest_mw = 200000;
    *highest_mw = 700000;
    return refusal(&faults, "nvmlDeviceGetPowerManagementLimitConstraints");
}

int nvmlDeviceGetPowerManagementDefaultLimit(void *handle, unsigned *limit_mw)
{
    Faults faults = faults_now();
    (void)handle;
    *limit_mw = 700000;
    return refusal(&faults, "nvmlDeviceGetPowerManagementDefaultLimit");
}

int nvmlDeviceSetPowerManagementLimit(void *handle, unsigned limit_mw)
{
    Faults faults = faults_now();
    const char *path = getenv("FAKE_NVML_LIMIT");
    int refused = refusal(&faults, "nvmlDeviceSetPowerManagementLimit");
    FILE *file = refused || !path ? NULL : fopen(path, "w");
    (void)handle;
    if (file) {
        fprintf(file, "%u", limit_mw);
        fclose(file);
    }
    return refused;
}
