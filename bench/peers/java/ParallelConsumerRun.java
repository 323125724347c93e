import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import java.nio.ByteOrder;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Confluent's parallel-consumer in KEY order. Takes the arguments of job.py and writes the file of notes.py. */
public final class ParallelConsumerRun {
    private static final int PARTITIONS = 15;
    private static final int HEADER = 64;

    private final MappedByteBuffer notes;
    private final int stride;
    private final int starts;
    private final int ends;
    private final AtomicLong left;
    private final CountDownLatch done = new CountDownLatch(1);

    private ParallelConsumerRun(String path) throws Exception {
        try (FileChannel file =
                FileChannel.open(Path.of(path), StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            notes = file.map(FileChannel.MapMode.READ_WRITE, 0, file.size());
        }
        notes.order(ByteOrder.LITTLE_ENDIAN);
        left = new AtomicLong(notes.getLong(0));
        stride = (int) notes.getLong(8);
        starts = HEADER + (PARTITIONS * stride + 7) / 8 * 8;
        ends = starts + 8 * PARTITIONS * stride;
    }

    public static void main(String[] arguments) throws Exception {
        new ParallelConsumerRun(arguments[3]).run(arguments);
    }

    private void run(String[] arguments) throws Exception {
        int atOnce = Integer.parseInt(arguments[5]);
        long wait = Math.round(Double.parseDouble(arguments[6]) * 1000);
        int size = Integer.parseInt(arguments[7]);
        Map<String, Object> settings = Map.of(
                ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0],
                ConsumerConfig.GROUP_ID_CONFIG, arguments[2],
                ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest",
                ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false);
        var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new ByteArrayDeserializer());
        var options = ParallelConsumerOptions.<String, byte[]>builder()
                .consumer(consumer)
                .ordering(ProcessingOrder.KEY)
                .maxConcurrency(atOnce)
                .batchSize(size)
                .build();
        var processor = ParallelStreamProcessor.createEosStreamProcessor(options);
        processor.subscribe(List.of(arguments[1]));
        processor.poll(context -> handle(context.getConsumerRecordsFlattened(), wait));
        done.await();
        processor.close();
    }

    private void handle(List<ConsumerRecord<String, byte[]>> records, long wait) {
        long start = System.nanoTime();
        if (wait > 0) {
            try {
                Thread.sleep(wait);
            } catch (InterruptedException stopped) {
                Thread.currentThread().interrupt();
                return;
            }
        }
        // The members of a batch run one after the other, as far as order goes: each gets an instant of its own.
        double first = start / 1e9;
        double step = (System.nanoTime() - start) / 1e9 / records.size();
        for (int number = 0; number < records.size(); number++) {
            note(records.get(number), first + number * step, first + (number + 1) * step);
        }
    }

    private void note(ConsumerRecord<String, byte[]> record, double start, double end) {
        int place = record.partition() * stride + (int) record.offset();
        int before = notes.get(HEADER + place) & 0xff;
        if (before == 0) {
            notes.putDouble(starts + 8 * place, start);
            notes.putDouble(ends + 8 * place, end);
        }
        notes.put(HEADER + place, (byte) Math.min(before + 1, 255));
        if (before == 0 && left.decrementAndGet() == 0) {
            done.countDown();
        }
    }
}
